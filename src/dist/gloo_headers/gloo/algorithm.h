#pragma once

// Nothing: ProcessGroupGloo.hpp includes it without a use. See
// ../../process_group_gloo.h.
