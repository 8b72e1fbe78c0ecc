#pragma once

// c10d::ProcessGroupGloo; the only place that includes LibTorch's header of it.
//
// LibTorch's packages ship ProcessGroupGloo.hpp, and gloo itself inside
// libtorch_cpu, but not the headers of gloo that ProcessGroupGloo.hpp includes:
// it stops at "gloo/algorithm.h: No such file or directory". Those in
// gloo_headers/ stand in for them. They declare no more than that header needs:
// gloo's objects are made and used inside LibTorch, we hold pointers to them.
//
// So that stays true, don't use GlooStore and AsyncWork of ProcessGroupGloo,
// which derive from gloo's classes or fill in for them, nor
// ProcessGroupGlooDetail.hpp and GlooDeviceFactory.hpp.
//
// A pointer is as large whatever the class behind it holds, so that the layout
// of ProcessGroupGloo is LibTorch's own. The sizes below are those of the
// versions that were looked at: in 2.13 the members were compared, offset by
// offset, with the class compiled with gloo's own headers.
//
// Source: the headers of the same names in https://github.com/pytorch/gloo,
// commit 70dc3602.

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13
static_assert(
    sizeof(c10d::ProcessGroupGloo) == 488,
    "ProcessGroupGloo is not that of LibTorch 2.13");
#elif TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 14
static_assert(
    sizeof(c10d::ProcessGroupGloo) == 544,
    "ProcessGroupGloo is not that of LibTorch 2.14");
#else
#error \
    "Nobody has looked whether gloo_headers/ fit this LibTorch. Read its \
ProcessGroupGloo.hpp for what it uses of gloo, run dist_test, add its size here."
#endif
