#pragma once

#include <string>

#include <c10/util/Exception.h>

#include <ampkit/export.h>

namespace ampkit {

/// A checkpoint or tensor file that is unreadable, damaged or does not fit.
///
/// Everything else is reported with LibTorch's own types: c10::ValueError for
/// an argument out of range, c10::Error for a call out of order or a wrong
/// dtype or device.
class AMPKIT_API CheckpointError : public c10::Error {
  using Error::Error;
};

} // namespace ampkit

/// Throws ampkit::CheckpointError with the concatenated message unless `cond`.
#define AMPKIT_CHECK_CHECKPOINT(cond, ...)   \
  if (C10_UNLIKELY_OR_CONST(!(cond))) {      \
    throw ::ampkit::CheckpointError(         \
        {static_cast<const char*>(__func__), \
         static_cast<const char*>(__FILE__), \
         static_cast<uint32_t>(__LINE__)},   \
        ::c10::str(__VA_ARGS__));            \
  }
