// Holds a network in C++ against what dump_activations.py wrote of it.
//
//     compare_with_python FOLDER [PRECISION]
//
// prints how far each module is from Python's; exit status 1 if one departs.
#include <cstdio>
#include <string>

#include <ampkit/ampkit.h>
#include <torch/torch.h>

namespace {

namespace diagnose = ampkit::diagnose;
namespace io = ampkit::io;

io::StateDict read(const std::string& path) {
  io::StateDict state;
  for (const auto& [name, tensor] : io::load_safetensors(path)) {
    state.set(name, tensor);
  }
  return state;
}

int compare(const std::string& folder, const std::string& precision) {
  torch::nn::Sequential model(
      torch::nn::Linear(16, 64),
      torch::nn::ReLU(),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})),
      torch::nn::Linear(64, 1));
  io::load_module_state(*model, read(folder + "/weights.safetensors"));
  const auto batch = read(folder + "/batch.safetensors").tensor("batch");
  const auto activations = diagnose::record_activations(
      *model,
      diagnose::single_pass(
          *model, [&] { return model->forward(batch).square().mean(); }),
      {.precision = ampkit::Precision::parse(precision)});
  const auto found = diagnose::compare_activations(
      activations, read(folder + "/python.safetensors"));
  for (const auto& [name, deviation] : found.entries) {
    std::printf(
        "%-4s off by %.1e, cosine %.6f\n",
        name.c_str(),
        deviation.relative,
        deviation.cosine);
  }
  const auto* departure = found.first_departure();
  std::printf("departs first: %s\n", departure ? departure->name.c_str() : "-");
  return departure ? 1 : 0;
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: compare_with_python FOLDER [PRECISION]\n");
    return 2;
  }
  try {
    return compare(argv[1], argc == 3 ? argv[2] : "fp32");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compare_with_python: error: %s\n", error.what());
    return 1;
  }
}
