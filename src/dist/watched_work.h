#pragma once

#include <exception>
#include <functional>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ampkit::dist {

/// Gives an error that a person can use for one of the backend. May wait.
using ExplainError = std::function<std::exception_ptr(std::exception_ptr)>;

/// A collective on its way, whose failure is explained.
c10::intrusive_ptr<c10d::Work> make_watched_work(
    c10::intrusive_ptr<c10d::Work> work, ExplainError explain);

} // namespace ampkit::dist
