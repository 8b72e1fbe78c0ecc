// A rank, for the tests of whole programs: trains until it has STEPS steps,
// from FOLDER/rank-<rank> if that is there, and saves there.
//
//   resumable_rank FOLDER STEPS

#include <filesystem>
#include <iostream>

#include <ampkit/dist/context.h>
#include <ampkit/io/checkpoint.h>

#include "dist/rank_run.h"

namespace {

void run(const std::string& folder, int64_t steps) {
  const auto context = ampkit::dist::init();
  const auto path = folder + "/rank-" + std::to_string(context.rank());
  ampkit::dist::RankRun run(context);
  if (std::filesystem::exists(path)) {
    run.state.load_state_dict(ampkit::io::load_checkpoint(path).state);
  }
  run.train(steps - run.step);
  ampkit::io::save_checkpoint(path, run.state.state_dict());
  context.barrier();
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: resumable_rank FOLDER STEPS\n";
    return 2;
  }
  try {
    run(argv[1], std::stoll(argv[2]));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
