#pragma once

#include <memory>
#include <string>

#include <ATen/record_function.h>

namespace ampkit {

/// Counts what would make the host wait for a GPU.
class SynchronisationCounter {
 public:
  SynchronisationCounter()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(
            [](const at::RecordFunction& fn)
                -> std::unique_ptr<at::ObserverContext> {
              const std::string name = fn.name();
              if (name == "aten::_local_scalar_dense" ||
                  name == "aten::nonzero") {
                ++count();
              }
              return nullptr;
            }))) {
    count() = 0;
  }
  ~SynchronisationCounter() { at::removeCallback(handle_); }
  SynchronisationCounter(const SynchronisationCounter&) = delete;
  SynchronisationCounter& operator=(const SynchronisationCounter&) = delete;

  static int& count() {
    thread_local int value = 0;
    return value;
  }

 private:
  at::CallbackHandle handle_;
};

} // namespace ampkit
