// Uses the zoo component of the installed package.
#include <iostream>

#include <ATen/Functions.h>

#include <ampkit/version.h>
#include <ampkit/zoo/models/model.h>
#include <ampkit/zoo/train/config.h>

namespace {

bool runs_a_model() {
  const auto model = ampkit::zoo::make_model(
      {.name = "resnet_small", .in_channels = 1, .num_classes = 10});
  return model.forward(at::zeros({2, 1, 28, 28})).sizes() ==
         at::IntArrayRef({2, 10});
}

bool catches_errors() {
  try {
    ampkit::zoo::parse_config("[train]\nepoch = 1\n", "text");
  } catch (const ampkit::zoo::ConfigError&) {
    return true;
  }
  return false;
}

} // namespace

int main() {
  std::cout << "zoo of ampkit " << AMPKIT_VERSION << "\n";
  return runs_a_model() && catches_errors() ? 0 : 1;
}
