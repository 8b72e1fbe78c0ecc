#include <ampkit/diagnose/verdict.h>

#include <array>

#include <c10/util/Exception.h>

namespace ampkit::diagnose {
namespace {

struct VerdictText {
  Verdict verdict;
  const char* name;
  const char* remedy;
  bool precision;
};

constexpr std::array kVerdictTexts{
    VerdictText{
        Verdict::handled_overflow,
        "overflow that the loss scaler handles",
        "Nothing: the step was skipped and the scale is halved.",
        true},
    VerdictText{
        Verdict::forward_overflow,
        "overflow in forward",
        "Run this module in float32 or bfloat16 (ModulePolicy), or make its "
        "inputs or weights smaller; in float32 already, look for what grows.",
        true},
    VerdictText{
        Verdict::backward_overflow,
        "overflow in backward",
        "Train with a GradScaler, whose scale shrinks; if the unscaled "
        "gradient does not fit either, run the module in float32 or bfloat16.",
        true},
    VerdictText{
        Verdict::division,
        "division by zero",
        "Add an eps to the divisor or clamp it from below. An eps below 6e-8 "
        "is zero in fp16: add it in float32.",
        false},
    VerdictText{
        Verdict::logarithm,
        "logarithm of zero or less",
        "Clamp the argument from below, or use log_softmax, logsigmoid or a "
        "loss on logits, which take the logarithm exactly.",
        false},
    VerdictText{
        Verdict::root,
        "root or power outside its domain",
        "Clamp the argument from below; a variance computed as a difference "
        "can be negative.",
        false},
    VerdictText{
        Verdict::singular_gradient,
        "infinite slope of a finite value",
        "Add an eps inside the root, norm or divisor. A where() outside does "
        "not help: its other branch is differentiated too, and 0 * inf is NaN.",
        false},
    VerdictText{
        Verdict::inf_minus_inf,
        "inf - inf or 0 * inf",
        "Use a large finite number in place of the infinity, or keep what is "
        "masked out of the arithmetic.",
        false},
    VerdictText{
        Verdict::masked_row,
        "softmax of a fully masked row",
        "Leave at least one position of each row unmasked, or mask with a "
        "large negative finite number, and drop the padded rows from the loss.",
        false},
    VerdictText{
        Verdict::invalid_operation,
        "operation without a result",
        "Look at the arguments below: at least one is outside of what the op "
        "is defined for.",
        false},
    VerdictText{
        Verdict::bad_input,
        "bad input data",
        "Repair or drop the sample; check data with isfinite() where it is "
        "loaded. Precision is not the cause.",
        false},
    VerdictText{
        Verdict::bad_parameter,
        "a parameter was bad before the step",
        "Load an earlier checkpoint; this one was damaged, or an earlier step "
        "should have been skipped (GradScaler with check_without_scaling).",
        false},
    VerdictText{
        Verdict::bad_buffer,
        "a buffer was bad before the step",
        "Reset the running statistics or load an earlier checkpoint: a bad "
        "batch was averaged into them.",
        false},
    VerdictText{
        Verdict::optimizer,
        "made by the optimizer",
        "Lower the learning rate or warm it up, clip gradients, and see that "
        "eps is not zero in the dtype of the state; 16-bit weights need FP32 "
        "masters.",
        false},
    VerdictText{
        Verdict::gradient_underflow,
        "gradients underflow",
        "Train with a GradScaler, or raise its scale; or run the module's "
        "backward in bfloat16 or float32.",
        true},
    VerdictText{
        Verdict::scale_at_floor,
        "overflows with the loss scale at its floor",
        "A smaller scale would lose small gradients and is not the cure: run "
        "the module in float32 or bfloat16, or look for what grows.",
        true}};

const VerdictText& text_of(Verdict verdict) {
  for (const auto& each : kVerdictTexts) {
    if (each.verdict == verdict) {
      return each;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "Verdict: ", static_cast<int>(verdict));
}

} // namespace

std::string to_string(Verdict verdict) {
  return text_of(verdict).name;
}

std::string remedy(Verdict verdict) {
  return text_of(verdict).remedy;
}

bool is_about_precision(Verdict verdict) {
  return text_of(verdict).precision;
}

} // namespace ampkit::diagnose
