#include <ampkit/diagnose/capsule_recorder.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ampkit/io/checkpoint_directory.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/version.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/version.h>

namespace ampkit::diagnose {
namespace {

constexpr const char* kRng = "rng";

void check_capsule_options(const CapsuleOptions& options) {
  TORCH_CHECK_VALUE(
      options.keep_last >= 1,
      "CapsuleRecorder: keep_last must be at least 1, got ",
      options.keep_last);
  TORCH_CHECK_VALUE(
      options.skips >= 0,
      "CapsuleRecorder: skips must not be negative, got ",
      options.skips);
  TORCH_CHECK_VALUE(
      options.max_bytes > 0,
      "CapsuleRecorder: max_bytes must be positive, got ",
      options.max_bytes);
  TORCH_CHECK_VALUE(
      options.rank >= 0,
      "CapsuleRecorder: rank must not be negative, got ",
      options.rank);
  TORCH_CHECK_VALUE(
      options.world_size > options.rank,
      "CapsuleRecorder: world_size must be more than rank, got ",
      options.world_size,
      " and ",
      options.rank);
}

int64_t bytes_of(const io::StateDict& state) {
  int64_t bytes = 0;
  for (const auto& [name, value] : state.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    bytes += tensor ? static_cast<int64_t>(tensor->nbytes()) : 0;
  }
  return bytes;
}

io::StateDict frozen(const io::StateDict& state) {
  io::StateDict result;
  for (const auto& [name, value] : state.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    result.set(name, tensor ? io::StateValue(tensor->detach().clone()) : value);
  }
  return result;
}

// The oldest go until all take no more than `most` bytes; the latest stays.
void remove_surplus(const io::CheckpointDirectory& files, int64_t most) {
  const auto list = files.list();
  int64_t total = 0;
  for (auto file = list.rbegin(); file != list.rend(); ++file) {
    total += static_cast<int64_t>(std::filesystem::file_size(file->path));
    if (total > most && file != list.rbegin()) {
      std::filesystem::remove(file->path);
    }
  }
}

bool all_finite(const at::Tensor& loss) {
  return at::isfinite(loss.detach()).all().item<bool>();
}

} // namespace

struct CapsuleRecorder::Impl {
  std::string folder;
  const torch::nn::Module& model;
  std::function<io::StateDict()> state;
  CapsuleOptions options;

  std::atomic<bool> asked = false;
  int64_t step = -1; // of begin(); -1: none is under way
  io::StateDict rng;
  std::optional<io::StateDict> first_amax; // none: nothing was begun yet
  // Of each buffer, by its memory: what a forward pass may change.
  std::unordered_map<const void*, at::Tensor> buffers;
  std::optional<io::StateDict> whole; // of a step that is asked for
  std::vector<io::StateDict> batches;
  int64_t skipped = 0; // in a row
  bool was_bad = false;
  int64_t saved = 0;

  void note(const std::string& text) const {
    if (options.on_note) {
      options.on_note(text);
    }
  }

  void remember_amax() {
    const at::NoGradGuard no_grad;
    first_amax.emplace();
    for (const auto& item : model.named_parameters()) {
      const auto& tensor = item.value();
      if (tensor.is_floating_point() && tensor.numel() > 0) {
        first_amax->set(
            item.key(), tensor.abs().max().to(at::kDouble).item<double>());
      }
    }
  }

  void remember_buffers() {
    buffers.clear();
    for (const auto& buffer : model.buffers()) {
      if (buffer.defined() && buffer.has_storage() && buffer.numel() > 0) {
        buffers.emplace(buffer.const_data_ptr(), buffer.detach().clone());
      }
    }
  }

  // The state before the step, of what it has changed already too.
  io::StateDict state_before() const {
    const auto now = state();
    io::StateDict before;
    for (const auto& [name, value] : now.entries()) {
      const auto* tensor = std::get_if<at::Tensor>(&value);
      const auto changed = tensor && tensor->has_storage()
                               ? buffers.find(tensor->const_data_ptr())
                               : buffers.end();
      const bool same_shape = changed != buffers.end() &&
                              tensor->sizes() == changed->second.sizes();
      before.set(name, same_shape ? changed->second : value);
    }
    before.set_all(kRng, rng);
    return before;
  }

  std::optional<std::string> finish(
      CapsuleReason reason, const at::Tensor& loss, const StepResult* result);
  std::string write(const Capsule& capsule);
  std::optional<CapsuleReason> reason_for(bool bad, bool skip);
};

std::optional<CapsuleReason> CapsuleRecorder::Impl::reason_for(
    bool bad, bool skip) {
  skipped = skip ? skipped + 1 : 0;
  const bool first = bad && !std::exchange(was_bad, bad);
  was_bad = bad;
  if (whole.has_value()) {
    return CapsuleReason::asked;
  }
  if (first) {
    return CapsuleReason::bad_loss;
  }
  return skip && skipped == options.skips ? std::optional(CapsuleReason::skips)
                                          : std::nullopt;
}

std::optional<std::string> CapsuleRecorder::Impl::finish(
    CapsuleReason reason, const at::Tensor& loss, const StepResult* result) {
  Capsule capsule{
      .step = step,
      .rank = options.rank,
      .world_size = options.world_size,
      .reason = reason,
      .batches = std::move(batches),
      .first_amax = first_amax.value_or(io::StateDict()),
      .config = options.config,
      .policy = options.policy,
      .faults = options.faults,
      .loss = loss.detach().cpu(),
      .ampkit_version = AMPKIT_VERSION,
      .torch_version = TORCH_VERSION,
      .threads = at::get_num_threads()};
  if (result != nullptr) {
    capsule.outcome = result->describe();
    capsule.grad_norm = result->grad_norm();
  }
  try {
    capsule.state = whole.has_value() ? *whole : state_before();
    return write(capsule);
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const c10::Error*>(&error);
    note(c10::str(
        "step ",
        step,
        " could not be saved: ",
        ours ? ours->msg() : error.what()));
    return std::nullopt;
  }
}

std::string CapsuleRecorder::Impl::write(const Capsule& capsule) {
  const auto content = state_of(capsule);
  const auto bytes = bytes_of(content);
  TORCH_CHECK(
      bytes <= options.max_bytes,
      "its ",
      bytes,
      " bytes are more than the ",
      options.max_bytes,
      " that capsules may take (max_bytes)");
  io::CheckpointDirectory files(folder, {.keep_last = options.keep_last});
  // A run that went back to an earlier step comes here again.
  files.remove_after(step);
  auto path = files.save(step, content);
  remove_surplus(files, options.max_bytes);
  ++saved;
  note(c10::str(
      "step ", step, " saved (", to_string(capsule.reason), ") in ", path));
  return path;
}

CapsuleRecorder::CapsuleRecorder(
    std::string folder,
    const torch::nn::Module& model,
    std::function<io::StateDict()> state,
    const CapsuleOptions& options) {
  check_capsule_options(options);
  TORCH_CHECK_VALUE(state, "CapsuleRecorder: state is empty");
  impl_ = std::unique_ptr<Impl>(
      new Impl{std::move(folder), model, std::move(state), options});
}

CapsuleRecorder::~CapsuleRecorder() = default;

void CapsuleRecorder::ask() noexcept {
  impl_->asked = true;
}

void CapsuleRecorder::begin(int64_t step) {
  TORCH_CHECK_VALUE(
      step >= 0, "CapsuleRecorder::begin: step must be >= 0, got ", step);
  auto& own = *impl_;
  own.step = step;
  own.batches.clear();
  own.rng = io::rng_state();
  if (!own.first_amax) {
    own.remember_amax();
  }
  own.whole.reset();
  if (own.asked.exchange(false)) {
    own.whole = frozen(own.state());
    own.whole->set_all(kRng, own.rng);
  } else {
    own.remember_buffers();
  }
}

void CapsuleRecorder::batch(const io::StateDict& tensors) {
  impl_->batches.push_back(tensors);
}

std::optional<std::string> CapsuleRecorder::end(
    const at::Tensor& loss, const StepResult& result) {
  auto& own = *impl_;
  TORCH_CHECK(
      own.step >= 0, "CapsuleRecorder::end: no step was begun; call begin()");
  const bool bad = !all_finite(loss);
  const bool skip = result.skipped();
  const auto reason = own.reason_for(bad, skip);
  std::optional<std::string> path;
  if (reason == CapsuleReason::bad_loss && !skip) {
    own.note(c10::str(
        "step ",
        own.step,
        " could not be saved: its loss is not finite, yet the optimizer "
        "stepped, so that the weights before it are gone"));
  } else if (reason.has_value()) {
    path = own.finish(*reason, loss, &result);
  }
  own.step = -1;
  return path;
}

std::optional<std::string> CapsuleRecorder::end(const at::Tensor& loss) {
  auto& own = *impl_;
  TORCH_CHECK(
      own.step >= 0, "CapsuleRecorder::end: no step was begun; call begin()");
  const auto reason = own.reason_for(!all_finite(loss), /*skip=*/false);
  auto path = reason ? own.finish(*reason, loss, nullptr) : std::nullopt;
  own.step = -1;
  return path;
}

int64_t CapsuleRecorder::saved() const {
  return impl_->saved;
}

} // namespace ampkit::diagnose
