#include <ampkit/io/event_file.h>

#include <cstring>

#include <ampkit/error.h>

#include "io/crc32c.h"
#include "io/temporary_folder.h"
#include "support/errors.h"

// What TensorBoard makes of the files is in tests/oracle/test_event_file.py.
namespace ampkit::io {
namespace {

/// The lengths of the whole records of a file, whose checksums are verified.
std::vector<size_t> record_lengths(std::string_view content) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
  };
  std::vector<size_t> lengths;
  while (content.size() >= 16) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, content.data(), 8);
    std::memcpy(&crc, content.data() + 8, 4);
    EXPECT_EQ(crc, masked(content.substr(0, 8)));
    if (content.size() < length + 16) {
      break;
    }
    std::memcpy(&crc, content.data() + 12 + length, 4);
    EXPECT_EQ(crc, masked(content.substr(12, length)));
    lengths.push_back(length);
    content.remove_prefix(length + 16);
  }
  EXPECT_TRUE(content.empty()) << content.size() << " bytes are left over";
  return lengths;
}

TEST(Crc32cTest, AgreesWithTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU); // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0U);
}

class EventFileTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(EventFileTest, EachCallIsInTheFileAtOnce) {
  EventFileWriter events(folder_.path() + "/a/b");
  EXPECT_EQ(record_lengths(read_text(events.path())).size(), 1U);
  events.add_scalar("loss", 0.5, 1);
  EXPECT_EQ(record_lengths(read_text(events.path())).size(), 2U);
  events.add_text("note", "a *text*", 1);
  EXPECT_EQ(record_lengths(read_text(events.path())).size(), 3U);
  events.flush();
}

TEST_F(EventFileTest, WritersOfOneDirectoryHaveFilesOfTheirOwn) {
  const EventFileWriter first(folder_.path());
  const EventFileWriter second(folder_.path(), {.purge_step = 7});
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(record_lengths(read_text(second.path())).size(), 2U);
}

TEST_F(EventFileTest, EmptyTagsAndBadFoldersAreRefused) {
  EventFileWriter events(folder_.path());
  EXPECT_ERROR(events.add_scalar("", 1, 1), c10::ValueError, "add_scalar");
  EXPECT_ERROR(events.add_text("", "x", 1), c10::ValueError, "add_text");
  EXPECT_EQ(record_lengths(read_text(events.path())).size(), 1U);
  write_text(folder_.path() + "/file", "");
  EXPECT_ERROR(
      EventFileWriter(folder_.path() + "/file/x"),
      CheckpointError,
      "cannot create");
}

TEST_F(EventFileTest, AFullDiskLeavesWholeRecords) {
  EventFileWriter events(folder_.path());
  events.add_scalar("loss", 0.5, 1);
  const std::string before = read_text(events.path());
  {
    const FileSizeLimit full(before.size() + 10);
    EXPECT_ERROR(
        events.add_scalar("loss", 0.5, 2), CheckpointError, events.path());
  }
  EXPECT_EQ(read_text(events.path()), before);
  events.add_scalar("loss", 0.5, 2);
  EXPECT_EQ(record_lengths(read_text(events.path())).size(), 3U);
}

} // namespace
} // namespace ampkit::io
