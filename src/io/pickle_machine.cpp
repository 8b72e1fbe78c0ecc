#include "io/pickle_machine.h"

#include <bit>
#include <iterator>

#include <c10/util/Exception.h>

#include <ampkit/error.h>

#include "io/pickle_opcodes.h"
#include "io/utf8.h"

namespace ampkit::io {
const char* kind_of(const PickleNode& node) {
  constexpr const char* kKinds[] = {
      "None",
      "a boolean",
      "an integer",
      "a number",
      "a text",
      "a tensor",
      "a dtype",
      "a list or tuple",
      "a dict",
      "a global",
      "a storage"};
  static_assert(std::size(kKinds) == std::variant_size_v<decltype(node.value)>);
  return kKinds[node.value.index()];
}

std::span<const std::byte> PickleMachine::take(size_t count) {
  check_pickle(
      count <= pickle_.size() - position_,
      "the pickle ends after ",
      pickle_.size(),
      " bytes, ",
      count,
      " more are needed");
  const auto taken = pickle_.subspan(position_, count);
  position_ += count;
  return taken;
}

uint64_t PickleMachine::number(size_t width) {
  uint64_t value = 0;
  const auto bytes = take(width);
  for (size_t i = 0; i < width; ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

double PickleMachine::real() {
  uint64_t bits = 0;
  for (const std::byte byte : take(8)) { // the one number that is big-endian
    bits = (bits << 8) | std::to_integer<uint64_t>(byte);
  }
  return std::bit_cast<double>(bits);
}

int64_t PickleMachine::long_integer() {
  const size_t width = number(1);
  check_pickle(
      width <= 8, "an integer of ", width, " bytes has no place in 64 bits");
  if (width == 0) {
    return 0;
  }
  const auto unused = static_cast<unsigned>(64 - 8 * width);
  // The arithmetic shift repeats the sign.
  return static_cast<int64_t>(number(width) << unused) >> unused;
}

std::string PickleMachine::text(size_t size) {
  const auto bytes = take(size);
  std::string text(reinterpret_cast<const char*>(bytes.data()), size);
  check_pickle(is_utf8(text), "a text is not UTF-8");
  return text;
}

std::string PickleMachine::line() {
  std::string text;
  constexpr size_t kLongest = 500;
  for (char c = 0; (c = static_cast<char>(number(1))) != '\n';) {
    text += c;
    check_pickle(text.size() < kLongest, "a name is longer than ", kLongest);
  }
  check_pickle(is_utf8(text), "a name is not UTF-8");
  return text;
}

PickleNode* PickleMachine::top() {
  const size_t bottom = marks_.empty() ? 0 : marks_.back();
  check_pickle(stack_.size() > bottom, "the stack is empty");
  return stack_.back();
}

PickleNode* PickleMachine::pop() {
  PickleNode* node = top();
  stack_.pop_back();
  return node;
}

std::vector<PickleNode*> PickleMachine::pop_to_mark() {
  check_pickle(!marks_.empty(), "there is no mark");
  const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  std::vector<PickleNode*> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

std::vector<PickleNode*> PickleMachine::pop_count(size_t count) {
  std::vector<PickleNode*> items(count);
  for (size_t i = count; i > 0; --i) {
    items[i - 1] = pop();
  }
  return items;
}

template <class Value>
Value& PickleMachine::as(PickleNode* node, const char* expected) {
  Value* value = std::get_if<Value>(&node->value);
  check_pickle(
      value != nullptr, "should work on ", expected, ", got ", kind_of(*node));
  return *value;
}

void PickleMachine::append(const std::vector<PickleNode*>& items) {
  auto& list = as<PickleSequence>(top(), "a list");
  check_pickle(!list.is_tuple, "should work on a list, got a tuple");
  list.items.insert(list.items.end(), items.begin(), items.end());
}

void PickleMachine::set_items(const std::vector<PickleNode*>& items) {
  auto& dict = as<PickleDict>(top(), "a dict");
  check_pickle(items.size() % 2 == 0, "a key has no value");
  for (size_t i = 0; i < items.size(); i += 2) {
    dict.items.emplace_back(items[i], items[i + 1]);
  }
}

void PickleMachine::push_tuple(std::vector<PickleNode*> items) {
  push(nodes_.add(PickleSequence{std::move(items), /*is_tuple=*/true}));
}

void PickleMachine::reduce() {
  const auto& arguments = as<PickleSequence>(pop(), "a tuple of arguments");
  const auto& function = as<PickleGlobal>(pop(), "a function");
  push(globals_.call(function, arguments));
}

void PickleMachine::build() {
  PickleNode* state = pop();
  as<PickleDict>(state, "a dict of attributes");
  auto& object = as<PickleDict>(top(), "an OrderedDict");
  check_pickle(
      object.kind == TorchDictKind::ordered,
      "should work on an OrderedDict, got another dict");
  object.attributes = state;
}

void PickleMachine::put(uint64_t index) {
  memo_[index] = top();
}

void PickleMachine::get(uint64_t index) {
  const auto place = memo_.find(index);
  check_pickle(place != memo_.end(), "nothing was kept under ", index);
  push(place->second);
}

bool PickleMachine::step_constant(uint8_t opcode) {
  switch (opcode) {
    case kNone:
      push(nodes_.add(std::monostate()));
      return true;
    case kNewTrue:
    case kNewFalse:
      push(nodes_.add(opcode == kNewTrue));
      return true;
    case kBinInt:
      push(nodes_.add(int64_t{static_cast<int32_t>(number(4))}));
      return true;
    case kBinInt1:
      push(nodes_.add(static_cast<int64_t>(number(1))));
      return true;
    case kBinInt2:
      push(nodes_.add(static_cast<int64_t>(number(2))));
      return true;
    case kLong1:
      push(nodes_.add(long_integer()));
      return true;
    case kBinFloat:
      push(nodes_.add(real()));
      return true;
    case kBinUnicode:
      push(nodes_.add(text(number(4))));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_container(uint8_t opcode) {
  switch (opcode) {
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    case kEmptyTuple:
      push_tuple({});
      return true;
    case kTuple:
      push_tuple(pop_to_mark());
      return true;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      push_tuple(pop_count(opcode - kTuple1 + 1U));
      return true;
    case kEmptyList:
      push(nodes_.add(PickleSequence()));
      return true;
    case kAppend:
      append(pop_count(1));
      return true;
    case kAppends:
      append(pop_to_mark());
      return true;
    case kEmptyDict:
      push(nodes_.add(PickleDict()));
      return true;
    case kSetItem:
      set_items(pop_count(2));
      return true;
    case kSetItems:
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_memo(uint8_t opcode) {
  switch (opcode) {
    case kBinPut:
      put(number(1));
      return true;
    case kLongBinPut:
      put(number(4));
      return true;
    case kBinGet:
      get(number(1));
      return true;
    case kLongBinGet:
      get(number(4));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_object(uint8_t opcode) {
  switch (opcode) {
    case kGlobal: {
      const std::string module = line();
      push(globals_.find(module + "." + line()));
      return true;
    }
    case kReduce:
      reduce();
      return true;
    case kBuild:
      build();
      return true;
    case kBinPersId:
      push(globals_.load(as<PickleSequence>(pop(), "a tuple")));
      return true;
    case kProto: {
      const uint64_t protocol = number(1);
      check_pickle(
          protocol == 2,
          "pickle protocol ",
          protocol,
          "; save with torch.save's default, 2");
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::step(uint8_t opcode) {
  if (opcode == kStop) {
    return false;
  }
  const bool known = step_constant(opcode) || step_container(opcode) ||
                     step_memo(opcode) || step_object(opcode);
  check_pickle(known, "is none that torch.save writes");
  return true;
}

const PickleNode* PickleMachine::run() {
  size_t start = 0;
  uint8_t opcode = 0;
  try {
    do {
      start = position_;
      opcode = static_cast<uint8_t>(number(1));
    } while (step(opcode));
    const PickleNode* result = pop();
    check_pickle(
        stack_.empty() && marks_.empty(), "values are left on the stack");
    return result;
  } catch (const CheckpointError&) {
    throw; // of the archive: names the place itself
  } catch (const std::exception& error) {
    const auto* libtorch = dynamic_cast<const c10::Error*>(&error);
    throw PickleProblem(c10::str(
        "byte ",
        start,
        ", opcode ",
        pickle_opcode_name(opcode),
        ": ",
        libtorch != nullptr ? libtorch->what_without_backtrace()
                            : error.what()));
  }
}

} // namespace ampkit::io
