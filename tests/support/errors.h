#pragma once

#include <string>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Expects `statement` to throw `type` (a c10::Error) whose message contains
/// every one of the texts given.
#define EXPECT_ERROR(statement, type, ...)                    \
  do {                                                        \
    try {                                                     \
      statement;                                              \
      ADD_FAILURE() << "no error from " #statement;           \
    } catch (const type& error) {                             \
      for (const std::string& text : {__VA_ARGS__}) {         \
        EXPECT_THAT(error.msg(), ::testing::HasSubstr(text)); \
      }                                                       \
    }                                                         \
  } while (false)
