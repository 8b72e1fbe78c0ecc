#pragma once

/// Marks what is visible outside the library: everything else is compiled with
/// hidden visibility, and an exception type without this mark could not be
/// caught in another shared library.
#define AMPKIT_API __attribute__((visibility("default")))
