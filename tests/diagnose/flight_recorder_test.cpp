#include <ampkit/diagnose/flight_recorder.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include <sys/wait.h>
#include <unistd.h>

#include <ampkit/error.h>

#include "diagnose/flight_format.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::diagnose {
namespace {

using io::read_text;
using io::TemporaryFolder;
using io::write_text;
using ::testing::HasSubstr;
using std::string_literals::operator""s;

class FlightRecorderTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/flight.bin"; }
  const std::string& folder() const { return folder_.path(); }

  // Records steps 1 to `count`, whose loss is the half of their number.
  void fly(int64_t count, int64_t capacity = 8) const {
    FlightRecorder flight(path(), {.capacity = capacity, .rank = 3});
    for (int64_t i = 1; i <= count; ++i) {
      flight.record({.step = i, .loss = 0.5 * static_cast<double>(i)});
    }
  }

  void damage(size_t byte) const {
    auto content = read_text(path());
    content.at(byte) = static_cast<char>(content.at(byte) ^ 0x10);
    write_text(path(), content);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(FlightRecorderTest, EveryNumberComesBack) {
  {
    FlightRecorder flight(path(), {.capacity = 4, .rank = 2});
    flight.begin(7, "backward");
    flight.record(
        {.step = 7,
         .loss = 2.5,
         .scale = 1024,
         .grad_norm = 0.75,
         .grad_max = 0.125,
         .bad_values = 3,
         .skipped = true,
         .fault = true,
         .verdict = "skipped: the loss is not finite"});
  }
  const auto log = read_flight(path());
  EXPECT_EQ(log.rank, 2);
  EXPECT_EQ(log.process, getpid());
  EXPECT_FALSE(log.host.empty());
  EXPECT_GT(log.started, 1.7e9);
  EXPECT_EQ(log.current_step, 7);
  EXPECT_EQ(log.phase, "backward");
  EXPECT_FALSE(log.ended.has_value());
  ASSERT_EQ(log.entries.size(), 1U);
  const auto& entry = log.entries.front();
  EXPECT_EQ(entry.step, 7);
  EXPECT_EQ(entry.loss, 2.5);
  EXPECT_EQ(entry.scale, 1024);
  EXPECT_EQ(entry.grad_norm, 0.75);
  EXPECT_EQ(entry.grad_max, 0.125);
  EXPECT_EQ(entry.bad_values, 3);
  EXPECT_TRUE(entry.skipped);
  EXPECT_TRUE(entry.fault);
  EXPECT_EQ(entry.verdict, "skipped: the loss is not finite");
  EXPECT_GE(entry.time, log.started);
}

TEST_F(FlightRecorderTest, TheLastStepsAreKept) {
  fly(21);
  const auto log = read_flight(path());
  EXPECT_EQ(log.recorded, 21);
  ASSERT_EQ(log.entries.size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(log.entries[i].step, 14 + static_cast<int64_t>(i));
    EXPECT_EQ(log.entries[i].loss, 0.5 * (14 + static_cast<double>(i)));
  }
  EXPECT_TRUE(std::isnan(log.entries[0].grad_norm));
  EXPECT_EQ(log.entries[0].bad_values, -1);
}

TEST_F(FlightRecorderTest, LongVerdictsAreCutBetweenCharacters) {
  {
    FlightRecorder flight(path());
    flight.record({.step = 1, .verdict = "x" + std::string(300, 'y')});
    std::string text = "x";
    for (int i = 0; i < 100; ++i) {
      text += "\u00e4"; // two bytes each
    }
    flight.record({.step = 2, .verdict = text});
  }
  const auto log = read_flight(path());
  EXPECT_EQ(log.entries[0].verdict, "x" + std::string(174, 'y'));
  EXPECT_EQ(log.entries[1].verdict.size(), 175U);
  EXPECT_TRUE(log.entries[1].verdict.ends_with("\u00e4"));
}

TEST_F(FlightRecorderTest, WhatIsThereIsKeptAsPrevious) {
  fly(2);
  fly(5);
  EXPECT_EQ(read_flight(path()).recorded, 5);
  EXPECT_EQ(read_flight(path() + ".previous").recorded, 2);
  fly(1);
  EXPECT_EQ(read_flight(path() + ".previous").recorded, 5);
}

TEST_F(FlightRecorderTest, EndSaysSo) {
  {
    FlightRecorder flight(path());
    flight.begin(3, "forward");
    flight.end("finished");
  }
  const auto log = read_flight(path());
  EXPECT_EQ(log.ended, "finished");
  EXPECT_EQ(log.current_step, 3);
  EXPECT_THAT(to_string(log), HasSubstr("0 steps recorded; ended: finished"));
}

// The process records as fast as it can and is killed at any moment.
TEST_F(FlightRecorderTest, SurvivesSigkill) {
  std::mt19937 random(5);
  const int trials = io::long_run() ? 500 : 30;
  for (int trial = 0; trial < trials; ++trial) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FlightRecorder flight(path(), {.capacity = 16});
      for (int64_t i = 1;; ++i) {
        flight.begin(i, "forward");
        flight.record({.step = i, .loss = 0.5 * static_cast<double>(i)});
      }
    }
    // The child makes the file anew; wait until it has flown a while.
    const auto begun = [&] {
      try {
        const auto log = read_flight(path());
        return log.process == child && log.recorded > 20;
      } catch (const CheckpointError&) {
        return false; // half written as we read, while the child lives
      }
    };
    while (!begun()) {
      usleep(1000);
    }
    usleep(std::uniform_int_distribution<useconds_t>(0, 2000)(random));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);

    const auto log = read_flight(path());
    EXPECT_EQ(log.process, child);
    EXPECT_GE(log.entries.size(), 15U);
    for (size_t i = 0; i < log.entries.size(); ++i) {
      const auto& entry = log.entries[i];
      EXPECT_EQ(entry.loss, 0.5 * static_cast<double>(entry.step));
      EXPECT_EQ(
          entry.step,
          log.recorded - static_cast<int64_t>(log.entries.size() - 1 - i));
    }
    EXPECT_GE(log.current_step, log.recorded);
    EXPECT_LE(log.current_step, log.recorded + 1);
    EXPECT_FALSE(log.ended.has_value());
  }
}

TEST_F(FlightRecorderTest, TornRecordIsToldFromAGoodOne) {
  fly(5);
  // The sixth, half written.
  auto content = read_text(path());
  content.at(kFlightFirstRecord + 5 * kFlightBlock) = 6;
  write_text(path(), content);
  auto log = read_flight(path());
  EXPECT_TRUE(log.torn);
  EXPECT_EQ(log.entries.size(), 5U);
  EXPECT_THAT(to_string(log), HasSubstr("while recording a step"));

  // Over the oldest of a full ring.
  fly(8);
  damage(kFlightFirstRecord + 100);
  log = read_flight(path());
  EXPECT_TRUE(log.torn);
  ASSERT_EQ(log.entries.size(), 7U);
  EXPECT_EQ(log.entries.front().step, 2);
}

TEST_F(FlightRecorderTest, TornPlaceOfNowLeavesTheOneBefore) {
  {
    FlightRecorder flight(path());
    flight.begin(1, "forward");
    flight.begin(1, "backward"); // into the first place
  }
  damage(kFlightBlock + 40);
  const auto log = read_flight(path());
  EXPECT_EQ(log.current_step, 1);
  EXPECT_EQ(log.phase, "forward");
}

TEST_F(FlightRecorderTest, DamageIsAnErrorThatNamesFileAndByte) {
  fly(5);
  const size_t third = kFlightFirstRecord + 2 * kFlightBlock;
  damage(third + 20);
  EXPECT_ERROR(
      read_flight(path()),
      CheckpointError,
      path(),
      "bytes "s + std::to_string(third) + " to "s +
          std::to_string(third + kFlightBlock));
  damage(third + 20);
  damage(60);
  EXPECT_ERROR(
      read_flight(path()),
      CheckpointError,
      path(),
      "bytes 0 to 256"s,
      "header"s);
}

TEST_F(FlightRecorderTest, EveryFlippedByteIsNoticedOrInNoRecord) {
  fly(20);
  const auto content = read_text(path());
  std::mt19937 random(8);
  std::uniform_int_distribution<size_t> any(0, content.size() - 1);
  for (int i = 0; i < 300; ++i) {
    const auto byte = any(random);
    damage(byte);
    try {
      const auto log = read_flight(path());
      const bool now = byte >= kFlightBlock && byte < kFlightFirstRecord;
      EXPECT_TRUE(now || log.torn) << "byte " << byte;
      // Of the latest record, damage looks like one that was not finished.
      EXPECT_GE(log.recorded, 19) << "byte " << byte;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.msg(), HasSubstr(path()));
      EXPECT_THAT(error.msg(), HasSubstr("byte"));
    }
    write_text(path(), content);
  }
}

TEST_F(FlightRecorderTest, WhatIsNoFlightIsAnError) {
  EXPECT_ERROR(read_flight(path()), CheckpointError, path(), "No such file"s);
  write_text(path(), "");
  EXPECT_ERROR(read_flight(path()), CheckpointError, path(), "byte 0"s);
  write_text(path(), "{\"step\": 3}\n");
  EXPECT_ERROR(read_flight(path()), CheckpointError, path(), "byte 0"s);
  fly(3);
  const auto content = read_text(path());
  write_text(path(), content.substr(0, 300));
  EXPECT_ERROR(
      read_flight(path()), CheckpointError, path(), "cut short"s, "byte 300"s);
  write_text(path(), content.substr(0, content.size() - 1));
  EXPECT_ERROR(
      read_flight(path()),
      CheckpointError,
      path(),
      "ends at byte "s + std::to_string(content.size() - 1));
}

TEST_F(FlightRecorderTest, LaterVersionIsAnError) {
  fly(1);
  auto content = read_text(path());
  content[8] = 9;
  auto header =
      std::as_writable_bytes(std::span(content)).first<kFlightBlock>();
  seal_flight_block(header);
  write_text(path(), content);
  EXPECT_ERROR(
      read_flight(path()), CheckpointError, path(), "version 9"s, "byte 8"s);
}

TEST_F(FlightRecorderTest, WrongOptionsAndPlacesAreErrors) {
  EXPECT_ERROR(
      FlightRecorder(path(), {.capacity = 0}),
      c10::ValueError,
      "capacity"s,
      "got 0"s);
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_ERROR(
      FlightRecorder(folder() + "/none/flight.bin"),
      CheckpointError,
      "FlightRecorder"s,
      folder() + "/none/flight.bin"s);
}

TEST_F(FlightRecorderTest, FullDiskIsAnErrorWhenItBegins) {
  const io::FileSizeLimit limit(4096);
  EXPECT_ERROR(FlightRecorder{path()}, CheckpointError, "reserve"s, path());
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(FlightRecorderTest, LinkIsLeftWhereTheLauncherLooks) {
  const auto links = folder() + "/links";
  std::filesystem::create_directory(links);
  setenv("AMPKIT_FLIGHT_DIR", links.c_str(), 1);
  fly(4); // of rank 3
  fly(5);
  unsetenv("AMPKIT_FLIGHT_DIR");
  EXPECT_EQ(read_flight(flight_link(links, 3)).recorded, 5);
}

TEST_F(FlightRecorderTest, RankIsThatOfTheEnvironment) {
  setenv("RANK", "6", 1);
  FlightRecorder(path()).record({.step = 1});
  unsetenv("RANK");
  EXPECT_EQ(read_flight(path()).rank, 6);
}

TEST_F(FlightRecorderTest, TextNamesTheLastStepAndItsFigures) {
  {
    FlightRecorder flight(path(), {.rank = 1});
    flight.record({.step = 40, .loss = 1.25, .scale = 512, .grad_norm = 2});
    flight.record(
        {.step = 41,
         .loss = NAN,
         .scale = 512,
         .bad_values = 12,
         .skipped = true,
         .verdict = "skipped: the loss is not finite"});
    flight.begin(42, "backward");
  }
  const auto text = describe_flight(path());
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_THAT(text, HasSubstr("last seen in step 42, backward, at 20"));
  EXPECT_THAT(
      text,
      HasSubstr("       40       1.25        512          2          -"
                "          -\n"));
  EXPECT_THAT(
      text,
      HasSubstr("       41        nan        512          -          -"
                "         12  skipped: the loss is not finite\n"));
  EXPECT_THAT(
      to_string(read_flight(path()), 1), ::testing::Not(HasSubstr("1.25")));
}

TEST_F(FlightRecorderTest, DescribingWhatCannotBeReadSaysWhy) {
  EXPECT_THAT(describe_flight(path()), HasSubstr("No such file"));
}

} // namespace
} // namespace ampkit::diagnose
