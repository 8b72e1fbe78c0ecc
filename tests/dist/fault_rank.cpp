// A rank of a small training, for tests of what becomes of it when one ends:
//
//   fault_rank FOLDER STEPS [throw|size|order|late RANK STEP]
//
// Each rank keeps the number of its step in FOLDER/rank-<r>.step. Rank 0 saves
// every 5 steps, and all go on from there; at the end it writes weights. The
// fault, which happens at the first start only: rank RANK throws, comes with a
// tensor of another size, with another collective, or too late.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include <ampkit/dist/context.h>
#include <ampkit/dist/distributed_data_parallel.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/module_state.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dist/small_models.h"

namespace {

namespace fs = std::filesystem;
using ampkit::dist::Context;

struct Fault {
  std::string kind;
  int rank = -1;
  int64_t step = -1;
};

class Training {
 public:
  Training(fs::path folder, Fault fault)
      : folder_(std::move(folder)),
        fault_(std::move(fault)),
        context_(ampkit::dist::init(
            {.timeout = std::chrono::seconds(fault_.kind == "late" ? 2 : 60)})),
        ddp_(*net_, context_) {}

  void run(int64_t steps) {
    resume();
    for (; step_ < steps; ++step_) {
      context_.at_step(step_ + 1);
      note_step();
      plant();
      const auto input =
          at::cos(
              at::arange(48, at::kFloat) *
              (0.1 + 0.01 * static_cast<double>(step_ + context_.rank())))
              .view({6, 8});
      ddp_.forward([&] { return net_(input); }).square().mean().backward();
      optimizer_.step();
      ddp_.zero_grad();
      if ((step_ + 1) % 5 == 0) {
        save("checkpoint");
      }
    }
    save("weights");
    context_.barrier();
  }

 private:
  void resume() {
    const auto path = folder_ / "checkpoint";
    if (fs::exists(path)) {
      const auto state = ampkit::io::load_checkpoint(path.string()).state;
      ampkit::io::load_module_state(*net_, state.subset("net"));
      step_ = state.integer("step");
    }
    context_.barrier(); // all have read it before rank 0 writes the next
  }

  void save(const std::string& name) {
    if (context_.rank() != 0) {
      return;
    }
    ampkit::io::StateDict state;
    state.set("step", step_ + 1);
    state.set_all("net", ampkit::io::module_state(*net_));
    ampkit::io::save_checkpoint((folder_ / name).string(), state);
  }

  void note_step() const {
    const auto name = "rank-" + std::to_string(context_.rank()) + ".step";
    std::ofstream(folder_ / name) << step_ + 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  void plant() const {
    if (context_.environment().restart_count > 0 || step_ + 1 != fault_.step ||
        context_.rank() != fault_.rank) {
      return;
    }
    std::vector<at::Tensor> tensors{at::ones({7})};
    if (fault_.kind == "throw") {
      throw std::runtime_error("a planted exception");
    }
    if (fault_.kind == "size") {
      context_.process_group()->allreduce(tensors)->wait();
    } else if (fault_.kind == "order") {
      context_.process_group()->broadcast(tensors)->wait();
    } else if (fault_.kind == "late") {
      std::this_thread::sleep_for(std::chrono::seconds(4));
    }
  }

  fs::path folder_;
  Fault fault_;
  Context context_;
  ampkit::dist::SmallNet net_;
  ampkit::dist::DistributedDataParallel ddp_;
  torch::optim::SGD optimizer_{
      net_->parameters(), torch::optim::SGDOptions(0.05)};
  int64_t step_ = 0;
};

} // namespace

int main(int argc, char** argv) {
  try {
    Fault fault;
    if (argc > 5) {
      fault = {argv[3], std::stoi(argv[4]), std::stoi(argv[5])};
    }
    Training(argv[1], fault).run(std::stoi(argv[2]));
    return 0;
  } catch (const c10::DistError& error) {
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
    return 4;
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  return 1;
}
