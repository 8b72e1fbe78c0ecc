#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace ampkit::bench {

/// The C++ side of a benchmark; bench/workers.py describes the conversation.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Numbers by name that the other side must agree with; asked for once,
  /// before the first run().
  virtual nlohmann::json check() = 0;

  /// One repetition; seconds per unit of work.
  virtual double run() = 0;
};

/// A worker of the program ampkit_bench:
///
///     const Registration kLoader{"loader", make_loader};
struct Registration {
  using Make = std::unique_ptr<Worker> (*)(std::span<const std::string> args);
  Registration(const char* name, Make make);
};

/// Seconds per call of `function`, over `count` calls.
double seconds_per_call(const std::function<void()>& function, int64_t count);

/// The losses of the first steps, as a check.
nlohmann::json losses(const std::function<at::Tensor()>& step, int64_t count);

} // namespace ampkit::bench
