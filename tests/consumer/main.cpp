// Uses one thing of each layer through the installed package, and nothing else
// of LibTorch than what ampkit's headers bring along.
#include <ampkit/ampkit.h>

#include <iostream>

#include <ATen/Functions.h>

namespace {

// One step of y = Wx in fp16, scaled, with ampkit's optimizer.
bool trains() {
  auto weight = at::ones({4, 8}).requires_grad_();
  const auto before = weight.detach().clone();
  ampkit::optim::AdamW optimizer(std::vector<at::Tensor>{weight}, {.lr = 0.1});
  ampkit::GradScaler scaler({.init_scale = 8.0});
  at::Tensor product;
  {
    const auto precision = ampkit::Precision::fp16_mixed();
    ampkit::Autocast autocast(at::kCPU, precision);
    product = at::mm(weight, at::ones({8, 2}));
  }
  scaler.scale(product.sum()).backward();
  const auto result = scaler.step(optimizer, {.max_norm = 1.0});
  scaler.update();
  return product.scalar_type() == at::kHalf && !result.skipped() &&
         !weight.detach().equal(before);
}

// An exception of the library is caught by its type in this program.
bool catches_errors() {
  try {
    ampkit::io::load_safetensors("/nonexistent/file.safetensors");
  } catch (const ampkit::CheckpointError&) {
    return true;
  }
  return false;
}

} // namespace

int main() {
  std::cout << "ampkit " << AMPKIT_VERSION << "\n";
  return trains() && catches_errors() ? 0 : 1;
}
