#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/pickle_node.h"

namespace ampkit::io {

/// What a pickle may name: everything that is not pure data.
class PickleGlobals {
 public:
  virtual ~PickleGlobals() = default;

  /// The value of the global `name`; throws PickleProblem if it is not allowed.
  virtual PickleNode* find(const std::string& name) = 0;
  /// What `function` gives for `arguments`.
  virtual PickleNode* call(
      const PickleGlobal& function, const PickleSequence& arguments) = 0;
  /// The storage with this persistent id.
  virtual PickleNode* load(const PickleSequence& id) = 0;
};

/// Runs a pickle of the kind that torch.load(weights_only=True) accepts: a
/// closed list of opcodes, which build data and call nothing but `globals`.
/// Time and memory are bounded by the size of the pickle.
///
/// Format: pickletools.py of CPython.
class PickleMachine {
 public:
  PickleMachine(
      std::span<const std::byte> pickle,
      PickleNodes& nodes,
      PickleGlobals& globals)
      : pickle_(pickle), nodes_(nodes), globals_(globals) {}

  /// The value of the whole pickle. Throws PickleProblem saying byte and
  /// opcode.
  const PickleNode* run();

 private:
  // What gives no value but STOP.
  bool step(uint8_t opcode);
  bool step_constant(uint8_t opcode);
  bool step_container(uint8_t opcode);
  bool step_memo(uint8_t opcode);
  bool step_object(uint8_t opcode);

  std::span<const std::byte> take(size_t count);
  uint64_t number(size_t width);
  double real();
  int64_t long_integer();
  std::string text(size_t size);
  std::string line();

  void push(PickleNode* node) { stack_.push_back(node); }
  PickleNode* pop();
  PickleNode* top();
  std::vector<PickleNode*> pop_to_mark();
  std::vector<PickleNode*> pop_count(size_t count);
  template <class Value>
  Value& as(PickleNode* node, const char* expected);

  void append(const std::vector<PickleNode*>& items);
  void set_items(const std::vector<PickleNode*>& items);
  void push_tuple(std::vector<PickleNode*> items);
  void reduce();
  void build();
  void put(uint64_t index);
  void get(uint64_t index);

  std::span<const std::byte> pickle_;
  size_t position_ = 0;
  PickleNodes& nodes_;
  PickleGlobals& globals_;
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleNode*> memo_;
};

} // namespace ampkit::io
