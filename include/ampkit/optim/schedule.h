#pragma once

#include <cstdint>

#include <ampkit/export.h>
#include <ampkit/optim/lr_scheduler.h>
#include <ampkit/optim/one_cycle.h>
#include <ampkit/optim/reduce_lr_on_plateau.h>
#include <ampkit/optim/schedule_chain.h>
#include <ampkit/optim/schedule_options.h>

namespace ampkit::optim {

/// torch.optim.lr_scheduler.ConstantLR. Throws c10::ValueError for options out
/// of range, as the others do.
class AMPKIT_API ConstantLR : public SequentialLR {
 public:
  explicit ConstantLR(
      torch::optim::Optimizer& optimizer,
      const ConstantLROptions& options = {});

 protected:
  const char* kind() const override { return "ConstantLR"; }
};

/// torch.optim.lr_scheduler.LinearLR.
class AMPKIT_API LinearLR : public SequentialLR {
 public:
  explicit LinearLR(
      torch::optim::Optimizer& optimizer, const LinearLROptions& options = {});

 protected:
  const char* kind() const override { return "LinearLR"; }
};

/// torch.optim.lr_scheduler.CosineAnnealingLR.
class AMPKIT_API CosineAnnealingLR : public SequentialLR {
 public:
  CosineAnnealingLR(
      torch::optim::Optimizer& optimizer,
      const CosineAnnealingLROptions& options);

 protected:
  const char* kind() const override { return "CosineAnnealingLR"; }
};

/// torch.optim.lr_scheduler.StepLR. That of LibTorch, torch::optim::StepLR,
/// decays one step later.
class AMPKIT_API StepLR : public SequentialLR {
 public:
  StepLR(torch::optim::Optimizer& optimizer, const StepLROptions& options);

 protected:
  const char* kind() const override { return "StepLR"; }
};

/// torch.optim.lr_scheduler.MultiStepLR.
class AMPKIT_API MultiStepLR : public SequentialLR {
 public:
  MultiStepLR(
      torch::optim::Optimizer& optimizer, const MultiStepLROptions& options);

 protected:
  const char* kind() const override { return "MultiStepLR"; }
};

/// torch.optim.lr_scheduler.CosineAnnealingWarmRestarts (SGDR).
class AMPKIT_API CosineAnnealingWarmRestarts : public SequentialLR {
 public:
  CosineAnnealingWarmRestarts(
      torch::optim::Optimizer& optimizer,
      const CosineAnnealingWarmRestartsOptions& options);

 protected:
  const char* kind() const override { return "CosineAnnealingWarmRestarts"; }
};

/// torch.optim.lr_scheduler.PolynomialLR.
class AMPKIT_API PolynomialLR : public SequentialLR {
 public:
  explicit PolynomialLR(
      torch::optim::Optimizer& optimizer,
      const PolynomialLROptions& options = {});

 protected:
  const char* kind() const override { return "PolynomialLR"; }
};

/// transformers' get_polynomial_decay_schedule_with_warmup.
class AMPKIT_API WarmupPolynomialLR : public SequentialLR {
 public:
  WarmupPolynomialLR(
      torch::optim::Optimizer& optimizer,
      const WarmupPolynomialLROptions& options);

 protected:
  const char* kind() const override { return "WarmupPolynomialLR"; }
};

/// transformers' get_wsd_schedule.
class AMPKIT_API WarmupStableDecayLR : public SequentialLR {
 public:
  WarmupStableDecayLR(
      torch::optim::Optimizer& optimizer,
      const WarmupStableDecayLROptions& options);

 protected:
  const char* kind() const override { return "WarmupStableDecayLR"; }
};

/// torch.optim.swa_utils.SWALR: the rate for a stochastic weight average. Make
/// it when its turn comes, or let it follow in a SequentialLR.
class AMPKIT_API SWALR : public SequentialLR {
 public:
  SWALR(torch::optim::Optimizer& optimizer, const SWALROptions& options);

 protected:
  const char* kind() const override { return "SWALR"; }
};

/// Settings of a WarmupCosineLR.
struct WarmupCosineLROptions {
  /// Steps of linear increase to the base rate; >= 0, < total_steps.
  int64_t warmup_steps = 0;
  /// Step at which eta_min is reached; from there on the rate stays.
  int64_t total_steps = 0;
  /// Of the base rate, at step 0; in (0, 1].
  double start_factor = 1e-3;
  double eta_min = 0;
};

/// Warm-up, then cosine: Python's SequentialLR of a LinearLR and a
/// CosineAnnealingLR, up to total_steps. Beyond them that would rise again;
/// this stays.
class AMPKIT_API WarmupCosineLR : public SequentialLR {
 public:
  /// Throws c10::ValueError for options out of range.
  WarmupCosineLR(
      torch::optim::Optimizer& optimizer, const WarmupCosineLROptions& options);

 protected:
  double rate(size_t g, int64_t step, double lr) const override;
  const char* kind() const override { return "WarmupCosineLR"; }

 private:
  int64_t total_steps_;
};

} // namespace ampkit::optim
