#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ampkit::dist {

/// Compares what ranks are about to do, before they do it: a mismatch would
/// hang, mix up tensors, or end the process inside Gloo.
class CollectiveCheck {
 public:
  /// `backend`: connections of its own.
  explicit CollectiveCheck(c10::intrusive_ptr<c10d::Backend> backend)
      : backend_(std::move(backend)) {}

  /// Waits for all ranks; throws c10::Error on each of them, with what two of
  /// them wanted to do, unless all want the same. `number`: the how-manieth
  /// collective it is; `what`: of describe_collective(); `where`: said besides.
  void check(int64_t number, const std::string& what, const std::string& where);

  /// Closes the connections.
  void abort() { backend_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

} // namespace ampkit::dist
