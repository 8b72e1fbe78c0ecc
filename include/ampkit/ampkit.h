#pragma once

/// The whole library. Each header is the manual of its part.

#include <ampkit/amp/autocast.h>
#include <ampkit/amp/cast_parameters.h>
#include <ampkit/amp/cpu_kernels.h>
#include <ampkit/amp/custom_function.h>
#include <ampkit/amp/fp8.h>
#include <ampkit/amp/fused_step.h>
#include <ampkit/amp/grad_scaler.h>
#include <ampkit/amp/module_policy.h>
#include <ampkit/amp/op_policy.h>
#include <ampkit/amp/precision.h>
#include <ampkit/amp/precision_controller.h>
#include <ampkit/amp/precision_policy.h>
#include <ampkit/amp/recompute.h>
#include <ampkit/amp/script_issues.h>
#include <ampkit/amp/script_module.h>
#include <ampkit/amp/step_result.h>
#include <ampkit/error.h>
#include <ampkit/io/checkpoint.h>
#include <ampkit/io/checkpoint_directory.h>
#include <ampkit/io/event_file.h>
#include <ampkit/io/json_lines.h>
#include <ampkit/io/module_state.h>
#include <ampkit/io/rng_state.h>
#include <ampkit/io/safetensors.h>
#include <ampkit/io/state_dict.h>
#include <ampkit/optim/adamw.h>
#include <ampkit/optim/clip.h>
#include <ampkit/optim/ema.h>
#include <ampkit/optim/schedule.h>
#include <ampkit/optim/sgd.h>
#include <ampkit/optim/swa.h>
#include <ampkit/optim/update_bn.h>
#include <ampkit/version.h>
