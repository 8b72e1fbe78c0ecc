#pragma once

#include <cstddef>

namespace ampkit::optim {

/// Asks the system for large pages in memory that was not touched yet: a step
/// walks through all of the state, and each 4 KiB page costs a walk through the
/// page tables. Does nothing to small blocks or where there are no large pages.
void advise_huge_pages(void* data, size_t bytes);

} // namespace ampkit::optim
