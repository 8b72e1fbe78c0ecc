#include <ampkit/io/training_state.h>

#include <torch/torch.h>

#include <ampkit/io/checkpoint.h>
#include <ampkit/io/rng_state.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

/// A loop that a stranger might write: dropout, a sampler, a best value.
struct Loop {
  Loop() {
    run.add("model", *model);
    run.add_sampler("sampler", sampler);
    run.add("step", step);
    run.add("best", best);
    run.add("best_name", best_name);
    run.add("warm", warm);
    run.add(
        "momentum",
        [this] {
          StateDict state;
          state.set("buffer", momentum);
          return state;
        },
        [this](const StateDict& state) {
          momentum.copy_(state.tensor("buffer"));
        });
  }

  void train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      auto rows = sampler.next(4);
      if (!rows) {
        sampler.reset();
        rows = sampler.next(4);
      }
      model->zero_grad();
      std::vector<int64_t> index(rows->begin(), rows->end());
      const auto loss =
          model->forward(data.index_select(0, torch::tensor(index)))
              .square()
              .mean();
      loss.backward();
      const torch::NoGradGuard no_grad;
      momentum.mul_(0.5).add_(linear()->weight.grad());
      linear()->weight.sub_(momentum);
      best = std::min(best, loss.item<double>());
      best_name = "step " + std::to_string(++step);
      warm = step > 3;
    }
  }

  torch::nn::LinearImpl* linear() {
    return model[1]->as<torch::nn::LinearImpl>();
  }

  torch::Tensor data = torch::arange(60.0).view({20, 3}).sin();
  torch::nn::Sequential model{torch::nn::Dropout(0.5), torch::nn::Linear(3, 2)};
  torch::Tensor momentum = torch::zeros({2, 3});
  torch::data::samplers::RandomSampler sampler{20};
  int64_t step = 0;
  double best = 1e9;
  std::string best_name = "none";
  bool warm = false;
  TrainingState run;
};

void expect_equal(const StateDict& found, const StateDict& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected.entries()) {
    ASSERT_TRUE(found.contains(name)) << name;
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      EXPECT_TRUE(found.tensor(name).equal(*tensor)) << name;
    } else {
      EXPECT_EQ(describe(*found.find(name)), describe(value)) << name;
    }
  }
}

class TrainingStateTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/run";
};

TEST_F(TrainingStateTest, ResumedRunIsTheRunThatItWasToTheLastBit) {
  torch::manual_seed(1);
  Loop whole;
  whole.train(17);
  for (const int64_t stop : {0, 3, 5, 11}) { // an epoch has 5 steps
    torch::manual_seed(1);
    Loop first;
    first.train(stop);
    save_checkpoint(path_, first.run.state_dict());
    torch::manual_seed(99);
    Loop second;
    second.train(2); // of which nothing may remain
    second.run.load_state_dict(load_checkpoint(path_).state);
    EXPECT_EQ(second.step, stop);
    second.train(17 - stop);
    expect_equal(second.run.state_dict(), whole.run.state_dict());
  }
}

TEST_F(TrainingStateTest, RandomNumbersAreNotForgotten) {
  torch::manual_seed(1);
  TrainingState run;
  const auto state = run.state_dict();
  const auto expected = torch::rand({4});
  run.load_state_dict(state);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST_F(TrainingStateTest, EntriesStandUnderTheNamesOfTheirParts) {
  Loop loop;
  std::vector<std::string> names;
  const auto state = loop.run.state_dict();
  for (const auto& entry : state.entries()) {
    names.push_back(entry.first);
  }
  EXPECT_THAT(
      names,
      ::testing::ElementsAre(
          "model.1.weight",
          "model.1.bias",
          "sampler.archive",
          "step",
          "best",
          "best_name",
          "warm",
          "momentum.buffer",
          "rng.cpu"));
}

TEST_F(
    TrainingStateTest, MissingAndUnexpectedPartsAreListedAndNothingIsLoaded) {
  Loop loop;
  StateDict other;
  other.set("model.1.weight", torch::zeros({2, 3}));
  other.set("model.1.bias", torch::zeros({2}));
  other.set("step", 7);
  other.set("average.weight", torch::ones({1}));
  other.set("average.bias", torch::ones({1}));
  const auto before = loop.linear()->weight.detach().clone();
  EXPECT_ERROR(
      loop.run.load_state_dict(other),
      c10::Error,
      "nothing was loaded",
      "missing: rng",
      "missing: sampler",
      "missing: momentum",
      "unexpected: average\n");
  EXPECT_TRUE(loop.linear()->weight.equal(before));
  EXPECT_EQ(loop.step, 0);
}

TEST_F(TrainingStateTest, PartThatRefusesItsStateLeavesAllAsItWas) {
  Loop loop;
  loop.train(2);
  StateDict before;
  const auto present = loop.run.state_dict();
  for (const auto& [name, value] : present.entries()) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    before.set(name, tensor ? StateValue(tensor->clone()) : value);
  }
  torch::manual_seed(5);
  Loop other;
  other.train(4);
  for (const auto& [name, bad, message] :
       std::vector<std::tuple<std::string, StateValue, std::string>>{
           {"model.1.weight", torch::ones({9}), "'model' refused"},
           {"step", std::string("seven"), "should be an integer, got text"},
           {"momentum.buffer", torch::ones({7}), "'momentum' refused"},
           {"rng.cpu", torch::ones({7}), "'rng' refused"}}) {
    auto state = other.run.state_dict();
    state.set(name, bad);
    set_rng_state(before.subset("rng"));
    EXPECT_ERROR(
        loop.run.load_state_dict(state),
        c10::Error,
        std::string("nothing was loaded"),
        message);
    expect_equal(loop.run.state_dict(), before);
  }
}

TEST_F(TrainingStateTest, PartThatHasNothingToSayIsNotMissing) {
  int loads = 0;
  TrainingState run;
  run.add(
      "disabled",
      [] { return StateDict(); },
      [&loads](const StateDict& state) {
        EXPECT_TRUE(state.empty());
        ++loads;
      });
  run.load_state_dict(run.state_dict());
  EXPECT_EQ(loads, 1);
}

TEST_F(TrainingStateTest, NamesAreChecked) {
  TrainingState run;
  int64_t step = 0;
  run.add("step", step);
  EXPECT_ERROR(run.add("", step), c10::ValueError, "must not be empty");
  EXPECT_ERROR(run.add("a.b", step), c10::ValueError, "got 'a.b'");
  EXPECT_ERROR(run.add("step", step), c10::ValueError, "a part 'step' already");
  EXPECT_ERROR(
      run.add("rng", step), c10::ValueError, "already, the random generators");
}

} // namespace
} // namespace ampkit::io
