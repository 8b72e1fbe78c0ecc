#include <ampkit/diagnose/capsule.h>

#include <algorithm>
#include <filesystem>

#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/checkpoint_directory.h>

namespace ampkit::diagnose {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCapsuleFormat = 1;

CapsuleReason reason_of(int64_t number, const std::string& path) {
  AMPKIT_CHECK_CHECKPOINT(
      number >= 0 && number <= static_cast<int64_t>(CapsuleReason::asked),
      "load_capsule: ",
      path,
      ": entry 'capsule.reason' is no reason, got ",
      number);
  return static_cast<CapsuleReason>(number);
}

void check_format(const io::StateDict& state, const std::string& path) {
  const auto* format = state.find("capsule.format");
  const auto* number = format ? std::get_if<int64_t>(format) : nullptr;
  AMPKIT_CHECK_CHECKPOINT(
      number != nullptr,
      "load_capsule: ",
      path,
      " is no capsule: it has no entry 'capsule.format'; a capsule is what a "
      "CapsuleRecorder, or ampkit train in <run>/capsules, wrote");
  AMPKIT_CHECK_CHECKPOINT(
      *number == kCapsuleFormat,
      "load_capsule: ",
      path,
      " has format ",
      *number,
      ", this version of ampkit reads ",
      kCapsuleFormat);
}

Capsule decode(const io::StateDict& state, const std::string& path) {
  check_format(state, path);
  const auto own = state.subset("capsule");
  Capsule capsule;
  capsule.path = path;
  capsule.step = own.integer("step");
  capsule.rank = static_cast<int>(own.integer("rank"));
  capsule.world_size = static_cast<int>(own.integer("world_size"));
  capsule.reason = reason_of(own.integer("reason"), path);
  capsule.config = own.text("config");
  capsule.policy = own.text("policy");
  capsule.faults = own.text("faults");
  capsule.outcome = own.text("outcome");
  capsule.grad_norm = own.real("grad_norm");
  capsule.ampkit_version = own.text("ampkit");
  capsule.torch_version = own.text("torch");
  capsule.threads = own.integer("threads");
  if (own.contains("loss")) {
    capsule.loss = own.tensor("loss");
  }
  const auto batches = own.integer("batches");
  for (int64_t i = 0; i < batches; ++i) {
    capsule.batches.push_back(state.subset("batch." + std::to_string(i)));
  }
  capsule.first_amax = state.subset("first_amax");
  capsule.state = state.subset("state");
  return capsule;
}

// The folder with the capsules of `path`, which is one or the folder of a run.
fs::path capsule_folder(const fs::path& path) {
  const auto inside = path / "capsules";
  return fs::is_directory(inside) ? inside : path;
}

std::vector<io::CheckpointFile> files_in_folder(const fs::path& folder) {
  return io::CheckpointDirectory(folder.string()).list();
}

} // namespace

std::string to_string(CapsuleReason reason) {
  switch (reason) {
    case CapsuleReason::bad_loss:
      return "its loss is not finite";
    case CapsuleReason::skips:
      return "many steps in a row were skipped";
    default:
      return "somebody asked";
  }
}

io::StateDict state_of(const Capsule& capsule) {
  io::StateDict state;
  state.set("capsule.format", kCapsuleFormat);
  state.set("capsule.step", capsule.step);
  state.set("capsule.rank", capsule.rank);
  state.set("capsule.world_size", capsule.world_size);
  state.set("capsule.reason", static_cast<int64_t>(capsule.reason));
  state.set("capsule.config", capsule.config);
  state.set("capsule.policy", capsule.policy);
  state.set("capsule.faults", capsule.faults);
  state.set("capsule.outcome", capsule.outcome);
  state.set("capsule.grad_norm", capsule.grad_norm);
  state.set("capsule.ampkit", capsule.ampkit_version);
  state.set("capsule.torch", capsule.torch_version);
  state.set("capsule.threads", capsule.threads);
  if (capsule.loss.defined()) {
    state.set("capsule.loss", capsule.loss);
  }
  state.set("capsule.batches", static_cast<int64_t>(capsule.batches.size()));
  for (size_t i = 0; i < capsule.batches.size(); ++i) {
    state.set_all("batch." + std::to_string(i), capsule.batches[i]);
  }
  state.set_all("first_amax", capsule.first_amax);
  state.set_all("state", capsule.state);
  return state;
}

Capsule capsule_of(const io::StateDict& state, const std::string& path) {
  try {
    return decode(state, path);
  } catch (const CheckpointError&) {
    throw;
  } catch (const c10::Error& error) {
    AMPKIT_CHECK_CHECKPOINT(
        false, "load_capsule: ", path, " is no whole capsule: ", error.msg());
    throw;
  }
}

std::vector<std::string> find_capsules(const std::string& path) {
  if (!fs::is_directory(path)) {
    return fs::exists(path) ? std::vector{path} : std::vector<std::string>();
  }
  const auto folder = capsule_folder(path);
  auto found = files_in_folder(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() &&
        entry.path().filename().string().starts_with("rank-")) {
      const auto more = files_in_folder(entry.path());
      found.insert(found.end(), more.begin(), more.end());
    }
  }
  std::ranges::stable_sort(found, {}, &io::CheckpointFile::step);
  std::vector<std::string> paths;
  for (const auto& file : found) {
    paths.push_back(file.path);
  }
  return paths;
}

Capsule load_capsule(const std::string& path) {
  const auto found = find_capsules(path);
  AMPKIT_CHECK_CHECKPOINT(
      !found.empty(),
      "load_capsule: ",
      path,
      fs::is_directory(path)
          ? " has no capsule: no step of it had a loss that was not finite, or "
            "so many skips in a row that one was saved"
          : " is not there");
  const auto& file = found.back();
  return capsule_of(io::load_checkpoint(file).state, file);
}

} // namespace ampkit::diagnose
