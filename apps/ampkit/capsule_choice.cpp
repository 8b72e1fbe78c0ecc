#include "capsule_choice.h"

#include <ampkit/zoo/train/config.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include "command.h"

namespace ampkit::app {

void add_capsule_options(CLI::App& command, CapsuleChoice& choice) {
  command
      .add_option("path", choice.path, "Folder of a run, or a capsule of it")
      ->required()
      ->check(CLI::ExistingPath)
      ->type_name("RUN|FILE");
  command.add_option("--step", choice.step, "Of which step; the latest")
      ->type_name("N");
  command.add_option("--rank", choice.rank, "Of which rank")->type_name("N");
}

diagnose::Capsule choose_capsule(const CapsuleChoice& choice) {
  const auto paths = diagnose::find_capsules(choice.path);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    auto capsule = diagnose::load_capsule(*path);
    if (capsule.step == choice.step.value_or(capsule.step) &&
        capsule.rank == choice.rank.value_or(capsule.rank)) {
      return capsule;
    }
  }
  if (paths.empty()) {
    return diagnose::load_capsule(
        choice.path); // throws, saying what is missing
  }
  throw UsageError(fmt::format(
      "{} has no capsule of that step and rank; it has {}",
      choice.path,
      c10::Join(", ", paths)));
}

std::string precision_name_of(const diagnose::Capsule& capsule) {
  return zoo::parse_config(capsule.config, capsule.path, {}).precision.preset;
}

} // namespace ampkit::app
