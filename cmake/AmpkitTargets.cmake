# How every target of this project is compiled.

# LibTorch's header decides by it whether at::parallel_for() uses its threads:
# compiled without, every loop of ours runs in one.
find_package(OpenMP REQUIRED COMPONENTS CXX)

if(AMPKIT_CCACHE)
  find_program(AMPKIT_CCACHE_PROGRAM ccache)
  if(AMPKIT_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # The sloppiness is what ccache's manual asks for with precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" ${AMPKIT_CCACHE_PROGRAM})
  endif()
endif()

# GCC 12 warns wrongly about operator+ of std::string (its bug 105651), here or
# there, depending on what it inlines.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION
                                            VERSION_LESS 13)
  set(AMPKIT_FALSE_WARNINGS -Wno-array-bounds -Wno-restrict
                            -Wno-stringop-overflow)
endif()

# With several files at a time GCC takes the file itself for a header, whose
# unnamed namespaces would be a mistake.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND AMPKIT_UNITY_BUILD)
  list(APPEND AMPKIT_FALSE_WARNINGS -Wno-subobject-linkage)
endif()

function(ampkit_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(
    ${target} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                      "${PROJECT_BINARY_DIR}/include"
                      "${PROJECT_SOURCE_DIR}/src")
  # record_function.h changes its layout with NDEBUG, and LibTorch's packages
  # are built with it: a debug build of ours must agree.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  target_compile_options(
    ${target}
    PRIVATE # -fPIC for programs too: a precompiled header serves one setting.
            -fPIC -fpch-preprocess -Wall -Wextra -Wshadow -Wconversion
            -Wno-sign-conversion
            # Options are passed as {.lr = 3e-4}: the rest are defaults.
            -Wno-missing-field-initializers
            ${AMPKIT_FALSE_WARNINGS}
            # Collecting garbage walks all of the precompiled header.
            $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=4000000>
            $<$<BOOL:${AMPKIT_WERROR}>:-Werror>)
  if(AMPKIT_SANITIZE)
    # The check of vptr wants type information that LibTorch does not export.
    target_compile_options(
      ${target} PRIVATE -fsanitize=address,undefined -fno-sanitize=vptr
                        -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
  # By the flag: given as a path, the compiler's own OpenMP library and the one
  # beside LibTorch make CMake warn that one of them hides the other.
  target_compile_options(${target} PRIVATE ${OpenMP_CXX_FLAGS})
  target_link_options(${target} PUBLIC ${OpenMP_CXX_FLAGS})
  target_link_libraries(${target} PUBLIC torch)
endfunction()

# ampkit_make_precompiled_header(NAME HEADERS... [OPTIONS ...]): a precompiled
# header that targets reuse; LibTorch's headers take far longer to parse than
# any source file of ours.
function(ampkit_make_precompiled_header name)
  cmake_parse_arguments(ARG "" "" "HEADERS;OPTIONS" ${ARGN})
  set(source "${CMAKE_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "") # keeps the time of an old one
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${source}")
  ampkit_compile_settings(${name})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# Each file pays for every template that the inline functions of its
# precompiled header use: 3 s for all of <torch/torch.h>, 2 s for these.
ampkit_make_precompiled_header(
  ampkit_pch HEADERS <ATen/ATen.h> <ATen/autocast_mode.h> <torch/library.h>
                     <torch/nn/module.h>)

# For targets most of whose files need the rest, which takes 10 s to parse.
ampkit_make_precompiled_header(
  ampkit_torch_pch HEADERS <torch/torch.h> <torch/library.h>
                           <ATen/autocast_mode.h>)

# Tests are compiled more often than they are run, and need all of LibTorch.
# The definition is that of GTest's own targets: a precompiled header serves one
# set of definitions.
set(AMPKIT_TEST_OPTIONS -O0 -DGTEST_HAS_PTHREAD=1)
if(AMPKIT_BUILD_TESTS)
  ampkit_make_precompiled_header(
    ampkit_test_pch
    HEADERS <torch/torch.h> <torch/library.h> <ATen/autocast_mode.h>
            <gmock/gmock.h> <gtest/gtest.h>
    OPTIONS ${AMPKIT_TEST_OPTIONS})
endif()

# ampkit_without_torch(SOURCES...): those that include nothing of LibTorch but
# c10. Without the precompiled header they compile in a third of the time.
function(ampkit_without_torch)
  set_source_files_properties(
    ${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# ampkit_compile_together(TARGET COUNT): its files are compiled COUNT at a time.
# What the precompiled header costs each time, 3 to 5 s, is often more than the
# file itself. Their unnamed namespaces become one: names in there are unique
# in the whole target.
function(ampkit_compile_together target count)
  set_target_properties(
    ${target} PROPERTIES UNITY_BUILD ${AMPKIT_UNITY_BUILD}
                         UNITY_BUILD_BATCH_SIZE ${count})
endfunction()

# ampkit_add_objects(NAME [ALL_OF_TORCH] SOURCES...): an object library with the
# shared settings and a precompiled header.
function(ampkit_add_objects name)
  cmake_parse_arguments(ARG "ALL_OF_TORCH" "" "" ${ARGN})
  add_library(${name} OBJECT ${ARG_UNPARSED_ARGUMENTS})
  ampkit_finish_target(${name} ${ARG_ALL_OF_TORCH})
endfunction()

# ampkit_add_program(NAME [ALL_OF_TORCH] SOURCES...)
function(ampkit_add_program name)
  cmake_parse_arguments(ARG "ALL_OF_TORCH" "" "" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  ampkit_finish_target(${name} ${ARG_ALL_OF_TORCH})
endfunction()

function(ampkit_finish_target name all_of_torch)
  ampkit_compile_settings(${name})
  ampkit_compile_together(${name} 6)
  if(all_of_torch)
    target_precompile_headers(${name} REUSE_FROM ampkit_torch_pch)
  else()
    target_precompile_headers(${name} REUSE_FROM ampkit_pch)
  endif()
endfunction()

# ampkit_add_test_program(NAME SOURCES...)
function(ampkit_add_test_program name)
  add_executable(${name} ${ARGN})
  ampkit_compile_settings(${name})
  ampkit_compile_together(${name} 8)
  target_compile_options(${name} PRIVATE ${AMPKIT_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM ampkit_test_pch)
endfunction()

# ampkit_add_test(NAME LAYERS io amp ... SOURCES ... LIBRARIES ...): one binary
# a layer, linked with the objects of that layer and those below it only, so
# that a call to a layer above fails to link. Binaries are few and large
# because each process spends half a second loading LibTorch.
function(ampkit_add_test name)
  cmake_parse_arguments(ARG "" "" "LAYERS;SOURCES;LIBRARIES" ${ARGN})
  ampkit_add_test_program(${name} ${ARG_SOURCES})
  foreach(layer ${ARG_LAYERS})
    target_link_libraries(${name} PRIVATE ampkit_${layer})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock
                                        GTest::gtest_main)
  target_include_directories(
    ${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests"
                    "${PROJECT_SOURCE_DIR}/zoo/include")
  target_compile_definitions(
    ${name} PRIVATE "AMPKIT_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  add_test(
    NAME ${name}
    COMMAND ${name}
            --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
  if(AMPKIT_SANITIZE)
    set(leaks "${PROJECT_SOURCE_DIR}/tests/leaks_of_libraries.txt")
    set_tests_properties(
      ${name} PROPERTIES TIMEOUT 1800 ENVIRONMENT
                         "LSAN_OPTIONS=suppressions=${leaks}")
  endif()
endfunction()
