#include "optim/huge_pages.h"

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ampkit::optim {

#ifdef __linux__
void advise_huge_pages(void* data, size_t bytes) {
  // Of x86 and most Arm systems. A wrong guess costs nothing but the effect.
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + bytes) / kPage * kPage;
  if (begin < end) {
    // Advice only: that it is not taken is no error.
    madvise(
        static_cast<char*>(data) + (begin - address),
        end - begin,
        MADV_HUGEPAGE);
  }
}
#else
void advise_huge_pages(void*, size_t) {}
#endif

} // namespace ampkit::optim
