#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ampkit/diagnose/capsule.h>
#include <ampkit/diagnose/replay.h>
#include <ampkit/export.h>
#include <ampkit/zoo/data/image_loader.h>
#include <ampkit/zoo/models/model.h>
#include <ampkit/zoo/train/config.h>
#include <ampkit/zoo/train/trainer.h>

namespace ampkit::zoo {

/// What a capsule of `ampkit train` was made by, built again.
struct AMPKIT_API CapsuleRun {
  diagnose::Capsule capsule;
  /// That of the run, but for what `overrides` changed.
  RunConfig config;
  Model model;
  /// With the model, which has new weights until something restores it. It has
  /// no images: run() and evaluate() throw DataError.
  std::unique_ptr<Trainer> trainer;
  /// What the step was given.
  std::vector<Batch> batches;
};

/// Builds model and Trainer from what the capsule says; needs neither the data
/// set nor the folder of the run. `overrides`: as those of load_config(), such
/// as "precision.preset=fp32" or "train.device=cpu". A policy that `overrides`
/// do not name is that which the run had.
///
/// Throws CheckpointError if the capsule is not one of `ampkit train`, and what
/// parse_config(), make_model() and Trainer() throw.
AMPKIT_API CapsuleRun open_capsule(
    diagnose::Capsule capsule, const std::vector<std::string>& overrides = {});

/// Restores the Trainer and does the step again; see diagnose::replay(). Call
/// it once: it leaves the Trainer after the step. Throws CheckpointError,
/// naming the file, if the state does not fit (after overrides).
AMPKIT_API diagnose::ReplayResult replay(CapsuleRun& run);

/// Puts the weights and buffers of the capsule into `run.model`, whatever the
/// dtypes of its parameters are now.
AMPKIT_API void restore_model(CapsuleRun& run);

} // namespace ampkit::zoo
