#include "diagnose/origin.h"

#include <algorithm>

namespace ampkit::diagnose {
namespace {

// The birth that a value descends from.
struct Lineage {
  int32_t birth = -1; // index of the births; -1: finite
};

struct Birth {
  int32_t op = -1;
  int32_t source = -1;
  bool deliberate = false;
  int64_t spread = 0;
};

class LineageWalk {
 public:
  explicit LineageWalk(const Tape& tape)
      : tape_(tape), of_value_(tape.values.size()) {
    for (size_t i = 0; i < tape.ops.size(); ++i) {
      visit(static_cast<int32_t>(i));
    }
  }

  // The birth behind a value; null: it is finite, or meant to be as it is.
  const Birth* behind(int32_t value) {
    const int32_t birth = birth_of(value);
    return birth < 0 || births_[static_cast<size_t>(birth)].deliberate
               ? nullptr
               : &births_[static_cast<size_t>(birth)];
  }

 private:
  const TapeValue& value(int32_t number) const {
    return tape_.values[static_cast<size_t>(number)];
  }

  int32_t birth_of(int32_t number, int32_t user = -1) {
    auto& known = of_value_[static_cast<size_t>(number)].birth;
    const auto& it = value(number);
    if (known < 0 && it.flags.any() && it.op < 0 && !it.uninitialised) {
      // A scalar infinity, or -inf in a constant, is a mask; what stands in a
      // batch or a parameter is not.
      const bool mask =
          (it.source == Source::unknown || it.source == Source::buffer) &&
          !it.flags.nan && (it.single || !it.flags.positive_inf);
      known = add({.op = user, .source = number, .deliberate = mask});
    }
    return known;
  }

  int32_t add(const Birth& birth) {
    births_.push_back(birth);
    return static_cast<int32_t>(births_.size()) - 1;
  }

  // The first birth among inputs that are bad in the way that is asked for;
  // deliberate ones last.
  int32_t first_birth(const TapeOp& op, int32_t number, bool nan) {
    int32_t best = -1;
    for (const int32_t input : op.inputs) {
      const auto& flags = value(input).flags;
      const int32_t birth = birth_of(input, number);
      if (birth < 0 || (nan ? !flags.nan : !flags.any())) {
        continue;
      }
      const auto deliberate = [&](int32_t each) {
        return births_[static_cast<size_t>(each)].deliberate;
      };
      const bool better =
          best < 0 || (deliberate(best) && !deliberate(birth)) ||
          (deliberate(best) == deliberate(birth) && birth < best);
      best = better ? birth : best;
    }
    return best;
  }

  void visit(int32_t number) {
    const auto& op = tape_.ops[static_cast<size_t>(number)];
    const auto& made = value(op.output).flags;
    // A bad source is noted where it is first used, whatever comes of it.
    const int32_t any = first_birth(op, number, /*nan=*/false);
    if (!made.any()) {
      return;
    }
    const int32_t nan = first_birth(op, number, /*nan=*/true);
    int32_t birth = made.nan && nan >= 0 ? nan : any;
    const bool mask_met_something =
        made.nan && nan < 0 && birth >= 0 &&
        births_[static_cast<size_t>(birth)].deliberate;
    if (birth < 0 || mask_met_something) {
      birth = add({.op = number, .deliberate = op.constant_inf && !made.nan});
    } else {
      ++births_[static_cast<size_t>(birth)].spread;
    }
    of_value_[static_cast<size_t>(op.output)].birth = birth;
  }

  const Tape& tape_;
  std::vector<Lineage> of_value_;
  std::vector<Birth> births_;
};

// Without a backward pass and without anything that was named: what no later
// op used.
std::vector<Sink> unused_values(const Tape& tape) {
  std::vector<bool> used(tape.values.size());
  for (const auto& op : tape.ops) {
    for (const int32_t input : op.inputs) {
      used[static_cast<size_t>(input)] = true;
    }
  }
  std::vector<Sink> result;
  for (const auto& op : tape.ops) {
    if (!used[static_cast<size_t>(op.output)]) {
      result.push_back({.kind = Sink::Kind::output, .value = op.output});
    }
  }
  return result;
}

} // namespace

std::optional<Origin> find_origin(const Tape& tape) {
  LineageWalk walk(tape);
  std::optional<Origin> first;
  const auto sinks = tape.sinks.empty() ? unused_values(tape) : tape.sinks;
  for (const Sink& sink : sinks) {
    if (sink.value < 0) {
      continue;
    }
    const Birth* birth = walk.behind(sink.value);
    if (birth == nullptr) {
      continue;
    }
    const Origin origin{
        .op = birth->op,
        .source = birth->source,
        .reached = sink.kind,
        .spread = birth->spread};
    // Ops are in the order of time.
    if (!first.has_value() || origin.op < first->op) {
      first = origin;
    }
  }
  return first;
}

} // namespace ampkit::diagnose
