// Files that are damaged, or made to do harm.
#include <fstream>

#include <torch/torch.h>

#include <ampkit/error.h>
#include <ampkit/io/torch_state.h>

#include "io/temporary_folder.h"
#include "io/torch_archive_builder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

class TorchStateDamageTest : public ::testing::Test {
 protected:
  /// Loads a file with this pickle, and the record data/0.
  TorchValue load(const std::string& pickle, const std::string& data = "") {
    build_torch_archive(path_, pickle, {{"data/0", data}});
    return load_torch_state(path_);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/file.pt";
};

std::string sample(const std::string& path) {
  TorchDict dict(TorchDictKind::ordered);
  torch::manual_seed(0);
  dict.set("weight", torch::randn({5, 3}));
  dict.set("flags", torch::ones({3}, at::kBool));
  dict.set("step", 12);
  dict.set("names", TorchList{{"a", TorchTuple{{1, 2.5}}}});
  save_torch_state(path, dict);
  return read_text(path);
}

TEST_F(TorchStateDamageTest, PickleThatRunsACommandIsRefusedByName) {
  const std::string marker = folder_.path() + "/ran";
  const std::string call = pickle::global("posix", "system") +
                           pickle::text("touch " + marker) + "\x85R";
  EXPECT_ERROR(
      load(pickle::whole(call)),
      CheckpointError,
      path_.c_str(),
      "posix.system",
      "byte 2",
      "opcode GLOBAL");
  EXPECT_FALSE(std::filesystem::exists(marker));
}

TEST_F(TorchStateDamageTest, WholeModuleIsRefusedWithAdvice) {
  EXPECT_ERROR(
      load(pickle::whole(pickle::global("__main__", "Net"))),
      CheckpointError,
      "__main__.Net",
      "state_dict()");
  EXPECT_ERROR(
      load(pickle::whole(
          pickle::global("torch._utils", "_rebuild_sparse_tensor"))),
      CheckpointError,
      "to_dense()");
}

TEST_F(TorchStateDamageTest, OpcodeThatTorchSaveDoesNotWriteIsRefused) {
  EXPECT_ERROR(load(pickle::whole("N\x93")), CheckpointError, "byte 3", "0x93");
  EXPECT_ERROR(load("\x80\x04N."), CheckpointError, "protocol 4");
}

TEST_F(TorchStateDamageTest, StackAndMemoAreChecked) {
  for (const std::string body :
       {"t", "a", "0", "R", "hA", "(", "NN", "Nq", ""}) {
    EXPECT_ERROR(load(pickle::whole(body)), CheckpointError, "data.pkl: byte");
  }
  EXPECT_ERROR(load(pickle::whole("N(NQ")), CheckpointError, "BINPERSID");
  EXPECT_ERROR(load("\x80"), CheckpointError, "1 more");
}

TEST_F(TorchStateDamageTest, ListInsideItselfIsRefused) {
  std::string body = "]q";
  body += '\0';
  body += "h";
  body += '\0';
  body += "a";
  EXPECT_ERROR(load(pickle::whole(body)), CheckpointError, "100 levels");
}

TEST_F(TorchStateDamageTest, DeepNestingIsRefused) {
  const std::string body =
      std::string(1'000'000, ']') + std::string(999'999, 'a');
  EXPECT_ERROR(load(pickle::whole(body)), CheckpointError, "100 levels");
}

// Each level mentions the one below ten times: a file of 1 kB, 10^40 values.
TEST_F(TorchStateDamageTest, MemoBombIsRefused) {
  std::string body = "]q";
  body += '\0';
  for (char level = 0; level < 40; ++level) {
    body += "](";
    for (int i = 0; i < 10; ++i) {
      body += "h";
      body += level;
    }
    body += "eq";
    body += static_cast<char>(level + 1);
  }
  body += "t";
  EXPECT_ERROR(
      load(pickle::whole("(" + body)), CheckpointError, "fill the memory");
}

TEST_F(TorchStateDamageTest, StorageThatIsTooSmallIsRefused) {
  const std::string sizes = pickle::integer(2) + pickle::integer(3);
  const std::string strides = pickle::integer(3) + pickle::integer(1);
  const auto file = [&](uint32_t count, uint32_t offset) {
    return pickle::whole(pickle::tensor(count, offset, sizes, strides));
  };
  const std::string six(24, '\0');
  EXPECT_EQ(load(file(6, 0), six).tensor().numel(), 6);
  EXPECT_ERROR(
      load(file(6, 1), six),
      CheckpointError,
      "needs 7 values, its storage has 6",
      "opcode REDUCE");
  EXPECT_ERROR(load(file(7, 0), six), CheckpointError, "should have 7");
  EXPECT_ERROR(load(file(6, ~0U), six), CheckpointError, "offset is -1");
}

TEST_F(TorchStateDamageTest, SizesBeyond64BitsAreRefused) {
  const std::string large = pickle::integer(0x7FFFFFFF);
  EXPECT_ERROR(
      load(
          pickle::whole(pickle::tensor(
              1, 0, large + large + large, large + large + large)),
          "1234"),
      CheckpointError,
      "too large");
  EXPECT_ERROR(
      load(pickle::whole(pickle::tensor(1, 0, large, "")), "1234"),
      CheckpointError,
      "1 sizes and 0 strides");
  EXPECT_ERROR(
      load(
          pickle::whole(
              pickle::tensor(1, 0, pickle::integer(~0U), pickle::integer(1))),
          "1234"),
      CheckpointError,
      "negative number -1");
}

TEST_F(TorchStateDamageTest, BooleanOtherThanZeroAndOneIsRefused) {
  const std::string size = pickle::integer(3);
  const std::string file = pickle::whole(
      pickle::tensor(3, 0, size, pickle::integer(1), "BoolStorage"));
  EXPECT_EQ(load(file, std::string("\1\0\1", 3)).tensor().sum().item<int>(), 2);
  EXPECT_ERROR(
      load(file, std::string("\1\0\2", 3)), CheckpointError, "booleans", "2");
}

TEST_F(TorchStateDamageTest, FlippedByteOfATensorIsNoticed) {
  std::string content = sample(path_);
  const at::Tensor weight =
      load_torch_state(path_).dict().at("weight").tensor();
  const std::string values(
      static_cast<const char*>(weight.const_data_ptr()), weight.nbytes());
  const size_t place = content.find(values);
  ASSERT_NE(place, std::string::npos);
  content[place + 7] ^= 1;
  write_text(path_, content);
  EXPECT_ERROR(
      load_torch_state(path_),
      CheckpointError,
      path_.c_str(),
      "data/0",
      "checksum");
  const TorchValue unchecked =
      load_torch_state(path_, {.verify_checksums = false});
  EXPECT_FALSE(unchecked.dict().at("weight").tensor().equal(weight));
}

TEST_F(TorchStateDamageTest, TruncatedFileIsRefusedAtEveryLength) {
  const std::string content = sample(path_);
  for (size_t size = 1; size < content.size(); size += 13) {
    write_text(path_, content.substr(0, size));
    EXPECT_ERROR(load_torch_state(path_), CheckpointError, path_);
  }
}

TEST_F(TorchStateDamageTest, OtherFilesAreRefusedByName) {
  write_text(path_, "\x80\x02N.");
  EXPECT_ERROR(load_torch_state(path_), CheckpointError, "before 1.6");
  torch::save(torch::ones({2}), path_);
  EXPECT_ERROR(load_torch_state(path_), CheckpointError, "TorchScript");
  write_text(path_, "weights");
  EXPECT_ERROR(load_torch_state(path_), CheckpointError, "not a zip file");
  EXPECT_ERROR(
      load_torch_state(folder_.path() + "/none.pt"),
      CheckpointError,
      "none.pt",
      "No such file");
}

/// A damaged file gives an error that names it, or what it is without damage.
void expect_error_or_value(
    const std::string& path, const LoadTorchStateOptions& options) {
  try {
    const TorchValue loaded = load_torch_state(path, options);
    // Values are touched, so that wrong memory would be noticed.
    if (const auto* dict = std::get_if<TorchDict>(&loaded.variant())) {
      for (const auto& [key, value] : dict->entries()) {
        if (const auto* tensor = std::get_if<at::Tensor>(&value.variant())) {
          // A stride of 0 makes much of little, rightly.
          if (tensor->numel() < 1'000'000) {
            (void)tensor->sum();
          }
        }
      }
    }
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.msg(), ::testing::HasSubstr(path));
  }
}

TEST_F(TorchStateDamageTest, RandomDamageNeverCrashes) {
  const std::string content = sample(path_);
  std::mt19937 random(0);
  const int count = long_run() ? 20'000 : 300;
  for (int i = 0; i < count; ++i) {
    write_text(path_, damaged(content, random));
    expect_error_or_value(path_, {});
    expect_error_or_value(path_, {.verify_checksums = false});
  }
}

// Under valid checksums, so that the damage reaches the reader of pickles.
TEST_F(TorchStateDamageTest, RandomPicklesNeverCrash) {
  const std::string content = sample(path_);
  const auto start = content.find("\x80\x02");
  const auto end = content.find("PK", start);
  const std::string pickle = content.substr(start, end - start);
  std::mt19937 random(1);
  const int count = long_run() ? 20'000 : 300;
  for (int i = 0; i < count; ++i) {
    std::filesystem::remove(path_);
    build_torch_archive(
        path_,
        damaged(pickle, random),
        {{"data/0", std::string(60, '\1')}, {"data/1", std::string(3, '\1')}});
    expect_error_or_value(path_, {});
  }
}

} // namespace
} // namespace ampkit::io
