#pragma once

namespace ampkit::zoo {

/// Memory of this process that is in RAM, in 10^6 bytes; 0 where the system
/// does not tell. Shared pages count in full.
double resident_megabytes();

} // namespace ampkit::zoo
