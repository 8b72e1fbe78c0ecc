#include "optim/optimizer_archive.h"

#include <string>
#include <variant>

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

namespace ampkit::optim {
namespace {

// Names of entries contain dots, which an archive takes for nesting: they are
// values here, and the keys are numbers.
constexpr const char* kCountKey = "ampkit_optimizer_entries";

std::string name_key(int64_t i) {
  return "name_" + std::to_string(i);
}

std::string value_key(int64_t i) {
  return "value_" + std::to_string(i);
}

io::StateValue to_value(const c10::IValue& value, const char* who) {
  if (value.isTensor()) {
    return value.toTensor();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return value.toDouble();
  }
  if (value.isBool()) {
    return value.toBool();
  }
  TORCH_CHECK(
      value.isString(),
      who,
      "::load: unexpected ",
      value.tagKind(),
      " in the archive");
  return value.toStringRef();
}

} // namespace

void write_archive(
    torch::serialize::OutputArchive& archive, const io::StateDict& state) {
  int64_t i = 0;
  for (const auto& [name, value] : state.entries()) {
    archive.write(name_key(i), c10::IValue(name));
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      archive.write(value_key(i), *tensor, /*is_buffer=*/true);
    } else {
      std::visit(
          [&](const auto& plain) {
            archive.write(value_key(i), c10::IValue(plain));
          },
          value);
    }
    ++i;
  }
  archive.write(kCountKey, c10::IValue(i));
}

io::StateDict read_archive(
    torch::serialize::InputArchive& archive, const char* who) {
  c10::IValue count;
  TORCH_CHECK(
      archive.try_read(kCountKey, count) && count.isInt(),
      who,
      "::load: the archive was not written by an ampkit optimizer; state of "
      "torch::optim can't be taken over");
  io::StateDict state;
  for (int64_t i = 0; i < count.toInt(); ++i) {
    c10::IValue name;
    c10::IValue value;
    archive.read(name_key(i), name);
    archive.read(value_key(i), value);
    state.set(name.toStringRef(), to_value(value, who));
  }
  return state;
}

} // namespace ampkit::optim
