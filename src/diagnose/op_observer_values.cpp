#include "diagnose/op_observer.h"

namespace ampkit::diagnose {

void OpObserver::read_flags(const at::Tensor& tensor, TapeValue& value) {
  if (!reads_at_once(tensor)) {
    value.pending = static_cast<int32_t>(tape_.pending.size());
    tape_.pending.push_back(flags_on_device(tensor));
  } else {
    value.flags = flags_of(tensor);
  }
}

bool OpObserver::reads_at_once(const at::Tensor& tensor) const {
  return reading_ == Reading::at_once || (tensor.is_cpu() && !defer_all_);
}

int32_t OpObserver::value_of(const at::Tensor& tensor) {
  const int32_t held = held_by(tensor);
  return held < 0 ? new_source(tensor) : held;
}

// A tensor that first shows up inside an op was made by that op, past the
// dispatcher.
int32_t OpObserver::new_intermediate(
    const at::Tensor& tensor, const Frame& user) {
  if (user.traits.writes && user.inputs.empty()) {
    return hold(tensor, {.uninitialised = true}); // about to be written to
  }
  TapeValue value;
  read_flags(tensor, value);
  value.op = new_op(*user.parent);
  const int32_t number = hold(tensor, value);
  auto& op = tape_.ops[static_cast<size_t>(value.op)];
  op.output = number;
  // Perhaps memory that is not written yet: looked at closely only if it comes
  // to something.
  if (user.parent->suspect < 0) {
    user.parent->suspect = value.op;
  }
  return number;
}

int32_t OpObserver::held_by(const at::Tensor& tensor) const {
  const auto found = by_storage_.find(storage_of(tensor));
  return found == by_storage_.end() ? -1 : found->second.value;
}

int32_t OpObserver::hold(const at::Tensor& tensor, const TapeValue& value) {
  const auto number = static_cast<int32_t>(tape_.values.size());
  tape_.values.push_back(value);
  tape_.values.back().dtype = tensor.scalar_type();
  const auto place = by_storage_.find(storage_of(tensor));
  if (place != by_storage_.end()) {
    place->second.value = number;
  } else {
    by_storage_.emplace(
        storage_of(tensor),
        Held{number, tensor.storage().getWeakStorageImpl()});
  }
  return number;
}

int32_t OpObserver::new_source(const at::Tensor& tensor) {
  TapeValue value{
      .source = Source::unknown,
      .name = names_->find(tensor),
      .single = tensor.numel() == 1};
  if (value.name >= 0) {
    value.source = names_->entry(value.name).parameter ? Source::parameter
                                                       : Source::buffer;
  }
  read_flags(tensor, value);
  if (value.flags.any()) {
    value.summary = static_cast<int32_t>(tape_.sources.size());
    tape_.sources.push_back(summarize(tensor));
  }
  return hold(tensor, value);
}

int32_t OpObserver::new_value(
    const at::Tensor& tensor, int32_t op, bool uninitialised) {
  TapeValue value{.op = op, .uninitialised = uninitialised};
  if (!uninitialised) {
    read_flags(tensor, value);
    // Written in part, it keeps what stood in the rest.
    const int32_t before = held_by(tensor);
    const auto bytes = static_cast<size_t>(tensor.numel()) * tensor.itemsize();
    if (before >= 0 && bytes < storage_of(tensor)->nbytes() &&
        writes_into(op, before)) {
      value.flags =
          value.flags | tape_.values[static_cast<size_t>(before)].flags;
    }
  }
  return hold(tensor, value);
}

bool OpObserver::writes_into(int32_t op, int32_t value) const {
  const auto& written = tape_.values[static_cast<size_t>(value)];
  if (written.op < 0 && written.source == Source::unknown) {
    return false; // perhaps memory that nobody has written to
  }
  for (const int32_t input : tape_.ops[static_cast<size_t>(op)].inputs) {
    if (input == value) {
      return true;
    }
  }
  return false;
}

int32_t OpObserver::add_input(const at::Tensor& tensor, int32_t number) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  if (!is_watched(tensor)) {
    return -1;
  }
  by_storage_.erase(storage_of(tensor));
  const int32_t value = new_source(tensor);
  auto& source = tape_.values[static_cast<size_t>(value)];
  source.source = Source::input;
  source.name = number;
  return value;
}

void OpObserver::add_sink(
    Sink::Kind kind, const at::Tensor& tensor, int32_t name) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex_);
  if (is_watched(tensor)) {
    tape_.sinks.push_back(
        {.kind = kind, .value = value_of(tensor), .name = name});
  }
}

bool OpObserver::saw_finite(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  const int32_t held = held_by(tensor);
  return held >= 0 && !tape_.values[static_cast<size_t>(held)].flags.any();
}

void OpObserver::set_micro_batch(int64_t micro_batch) {
  const std::lock_guard lock(mutex_);
  micro_batch_ = micro_batch;
}

} // namespace ampkit::diagnose
