#include <ampkit/diagnose/finding.h>

#include <sstream>

namespace ampkit::diagnose {
namespace {

void append_op(const Finding& finding, std::ostream& out) {
  out << "  op        "
      << (finding.op.empty() ? "the optimizer's update" : finding.op);
  if (!finding.caller.empty() && finding.caller != finding.op) {
    out << ", called by " << finding.caller;
  }
  if (!finding.node.empty()) {
    out << ", in " << finding.node;
  }
  if (!finding.forward_op.empty()) {
    out << ", the gradient of " << finding.forward_op;
  }
  out << " (" << to_string(finding.direction) << ")\n";
  if (!finding.source_line.empty()) {
    out << "  line      " << finding.source_line << "\n";
  }
}

void append_module(const Finding& finding, std::ostream& out) {
  out << "  module    "
      << (finding.module.empty() ? "(the network itself)" : finding.module);
  if (!finding.after.empty()) {
    out << ", after " << finding.after;
  }
  if (!finding.before.empty()) {
    out << ", before " << finding.before;
  }
  out << "\n";
  if (!finding.parameter.empty()) {
    out << "  tensor    " << finding.parameter << "\n";
  }
  if (finding.sample >= 0) {
    out << "  sample    " << finding.sample << " of "
        << (finding.input.empty() ? "an input" : finding.input) << "\n";
  }
}

void append_numbers(const Finding& finding, std::ostream& out) {
  for (const auto& input : finding.inputs) {
    if (input.dtype != c10::ScalarType::Undefined) {
      out << "  argument  " << to_string(input) << "\n";
    }
  }
  if (finding.output.dtype != c10::ScalarType::Undefined) {
    out << "  result    " << to_string(finding.output) << "\n";
  }
  if (finding.wide_amax.has_value()) {
    out << "  float64   up to " << *finding.wide_amax << "\n";
  }
  if (finding.spread > 0) {
    out << "  spread    to " << finding.spread << " more ops\n";
  }
}

} // namespace

std::string to_string(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "forward";
    case Direction::backward:
      return "backward";
    default:
      return "optimizer";
  }
}

std::string to_string(const Finding& finding) {
  std::ostringstream out;
  out << "step " << finding.step;
  if (finding.micro_batch > 0) {
    out << ", micro-batch " << finding.micro_batch;
  }
  out << ", rank " << finding.rank << ": " << to_string(finding.verdict)
      << "\n";
  append_op(finding, out);
  append_module(finding, out);
  append_numbers(finding, out);
  out << "  do        " << remedy(finding.verdict) << "\n";
  return out.str();
}

} // namespace ampkit::diagnose
