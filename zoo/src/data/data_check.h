#pragma once

#include <c10/util/Exception.h>

#include <ampkit/zoo/data/image_dataset.h>

/// Throws ampkit::zoo::DataError with the concatenated message unless `cond`.
#define AMPKIT_CHECK_DATA(cond, ...)         \
  if (C10_UNLIKELY_OR_CONST(!(cond))) {      \
    throw ::ampkit::zoo::DataError(          \
        {static_cast<const char*>(__func__), \
         static_cast<const char*>(__FILE__), \
         static_cast<uint32_t>(__LINE__)},   \
        ::c10::str(__VA_ARGS__));            \
  }
