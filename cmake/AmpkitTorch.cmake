# Finds LibTorch, in this order:
#   1. what the user gives: CMAKE_PREFIX_PATH, Torch_ROOT or Torch_DIR
#   2. an active Python environment (VIRTUAL_ENV, CONDA_PREFIX) that has torch
#   3. the local environment that scripts/setup.sh makes: .venv
set(AMPKIT_TORCH_MINIMUM 2.13)

# A project that takes ampkit by add_subdirectory links these packages through
# it, from a folder above, where it sees only global targets.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

# Sets `result` to the folder of TorchConfig.cmake in the environment at
# `prefix`, without importing torch, or to an empty string.
function(ampkit_torch_in_environment prefix result)
  file(GLOB candidates
       "${prefix}/lib/python3*/site-packages/torch/share/cmake/Torch")
  list(LENGTH candidates count)
  if(count EQUAL 0)
    set(${result} "" PARENT_SCOPE)
  else()
    list(GET candidates 0 first)
    set(${result} "${first}" PARENT_SCOPE)
  endif()
endfunction()

find_package(Torch ${AMPKIT_TORCH_MINIMUM} QUIET CONFIG)
if(NOT Torch_FOUND AND NOT Torch_CONSIDERED_VERSIONS)
  foreach(prefix "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}"
                 "${PROJECT_SOURCE_DIR}/.venv")
    if(prefix AND NOT Torch_FOUND)
      ampkit_torch_in_environment("${prefix}" torch_dir)
      if(torch_dir)
        set(Torch_DIR "${torch_dir}" CACHE PATH "Folder of TorchConfig.cmake"
                                           FORCE)
        find_package(Torch ${AMPKIT_TORCH_MINIMUM} QUIET CONFIG)
        break()
      endif()
    endif()
  endforeach()
endif()

if(NOT Torch_FOUND)
  if(Torch_CONSIDERED_VERSIONS)
    message(
      FATAL_ERROR
        "ampkit needs LibTorch ${AMPKIT_TORCH_MINIMUM} or newer, found "
        "${Torch_CONSIDERED_VERSIONS} at ${Torch_CONSIDERED_CONFIGS}.\n"
        "Upgrade it (pip install --upgrade torch), or run scripts/setup.sh, "
        "which puts a supported one into .venv.")
  endif()
  message(
    FATAL_ERROR
      "LibTorch was not found. Give its place with -DCMAKE_PREFIX_PATH=..., "
      "or activate a Python environment that has torch, or run "
      "scripts/setup.sh, which puts one into .venv.")
endif()
message(STATUS "LibTorch ${Torch_VERSION}: ${TORCH_INSTALL_PREFIX}")
