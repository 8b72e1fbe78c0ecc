#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/StringUtil.h>

#include <ampkit/io/torch_value.h>

namespace ampkit::io {

struct PickleNode;

struct PickleSequence {
  std::vector<PickleNode*> items;
  bool is_tuple = false;
};

struct PickleDict {
  std::vector<std::pair<PickleNode*, PickleNode*>> items;
  TorchDictKind kind = TorchDictKind::plain;
  PickleNode* attributes = nullptr;
};

/// A function or class that the pickle names: "torch._utils._rebuild_tensor".
struct PickleGlobal {
  std::string name;
};

/// The record of a storage; `dtype` is undefined for an UntypedStorage.
struct PickleStorage {
  c10::Storage storage;
  c10::ScalarType dtype;
};

/// A value while the pickle is being read. What a pickle mentions twice is one
/// node with two references: a list may even contain itself.
struct PickleNode {
  std::variant<
      std::monostate,
      bool,
      int64_t,
      double,
      std::string,
      at::Tensor,
      c10::ScalarType,
      PickleSequence,
      PickleDict,
      PickleGlobal,
      PickleStorage>
      value;
};

/// What is wrong with a pickle; the reader adds where.
class PickleProblem : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws PickleProblem with the joined `parts` unless `condition` holds.
template <class... Parts>
void check_pickle(bool condition, const Parts&... parts) {
  if (!condition) {
    throw PickleProblem(c10::str(parts...));
  }
}

/// The nodes of one pickle; references stay valid while it lives.
class PickleNodes {
 public:
  /// Throws PickleProblem when there are more than any state dict needs.
  template <class Value>
  PickleNode* add(Value value) {
    if (nodes_.size() == kMost) {
      throw PickleProblem("more than 20 million values");
    }
    nodes_.push_back(std::make_unique<PickleNode>());
    nodes_.back()->value = std::move(value);
    return nodes_.back().get();
  }

 private:
  static constexpr size_t kMost = 20'000'000;
  std::vector<std::unique_ptr<PickleNode>> nodes_;
};

/// "a list", "a text", ...: what a message says of a node.
const char* kind_of(const PickleNode& node);

} // namespace ampkit::io
