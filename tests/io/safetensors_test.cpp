#include <ampkit/io/safetensors.h>

#include <torch/torch.h>

#include <ampkit/error.h>

#include "io/temporary_folder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

/// A file made by hand: the length prefix, `header` and `value_bytes` zeros.
std::string raw_file(const std::string& header, size_t value_bytes) {
  const uint64_t length = header.size();
  std::string content(8, '\0');
  std::memcpy(content.data(), &length, 8);
  return content + header + std::string(value_bytes, '\0');
}

std::string one_tensor(const std::string& fields) {
  return "{\"w\":{" + fields + "}}";
}

class SafetensorsTest : public ::testing::Test {
 protected:
  /// Expects that a file with this header is refused, with these texts.
  void expect_refused(
      const std::string& header,
      size_t value_bytes,
      const std::vector<std::string>& texts) {
    write_text(path_, raw_file(header, value_bytes));
    try {
      const SafetensorsReader reader(path_);
      ADD_FAILURE() << "accepted " << header;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(path_));
      for (const auto& text : texts) {
        EXPECT_THAT(error.msg(), ::testing::HasSubstr(text)) << header;
      }
    }
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/model.safetensors";
};

at::Tensor random_bytes(int64_t count) {
  return torch::randint(0, 256, {count}, torch::kByte);
}

TEST_F(SafetensorsTest, EveryDtypeComesBackBitForBitAndInOrder) {
  torch::manual_seed(0);
  NamedTensors tensors;
  for (const auto dtype :
       {torch::kByte,
        torch::kChar,
        torch::kShort,
        torch::kInt,
        torch::kLong,
        torch::kUInt16,
        torch::kUInt32,
        torch::kUInt64,
        torch::kHalf,
        torch::kBFloat16,
        torch::kFloat,
        torch::kDouble,
        torch::kComplexFloat,
        torch::kFloat8_e4m3fn,
        torch::kFloat8_e5m2,
        torch::kFloat8_e4m3fnuz,
        torch::kFloat8_e5m2fnuz,
        torch::kFloat8_e8m0fnu,
        torch::kFloat4_e2m1fn_x2}) {
    // Three elements of one byte would put the next dtype out of alignment.
    const auto bytes =
        random_bytes(3 * static_cast<int64_t>(c10::elementSize(dtype)));
    tensors.emplace_back(c10::toString(dtype), bytes.view(dtype));
  }
  tensors.emplace_back("bool", torch::tensor({true, false, true}));
  save_safetensors(path_, tensors);
  const SafetensorsReader reader(path_);
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    EXPECT_EQ(reader.tensors()[i].name, name);
    for (const auto& found : {reader.view(name), reader.copy(name)}) {
      EXPECT_EQ(found.scalar_type(), tensor.scalar_type());
      EXPECT_TRUE(found.view(torch::kByte).equal(tensor.view(torch::kByte)))
          << name;
    }
  }
}

TEST_F(SafetensorsTest, ScalarsEmptyAndStridedTensorsKeepShapeAndValues) {
  const auto base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const auto conjugate = torch::complex(base[0], base[1]).conj(); // a lazy view
  save_safetensors(
      path_,
      {{"scalar", torch::tensor(2.5)},
       {"empty", torch::empty({0, 3})},
       {"transposed", base.t()},
       {"sliced", base.slice(1, 1, 6, 2)},
       {"expanded", torch::ones({1}).expand({5})},
       {"gradient", base.clone().requires_grad_()},
       {"conjugate", conjugate}});
  const SafetensorsReader reader(path_);
  EXPECT_TRUE(reader.view("scalar").equal(torch::tensor(2.5)));
  EXPECT_EQ(reader.view("empty").sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(reader.view("transposed").equal(base.t()));
  EXPECT_TRUE(reader.view("sliced").equal(base.slice(1, 1, 6, 2)));
  EXPECT_TRUE(reader.view("expanded").equal(torch::ones({5})));
  EXPECT_TRUE(reader.view("gradient").equal(base));
  EXPECT_TRUE(reader.view("conjugate").equal(conjugate.resolve_conj()));
}

TEST_F(SafetensorsTest, MetadataComesBackWithQuotesAndOtherAlphabets) {
  const SafetensorsMetadata metadata{
      {"a \"quoted\" name", "line\nbreak"}, {"name", "größer ∞"}};
  save_safetensors(path_, {}, metadata);
  EXPECT_EQ(SafetensorsReader(path_).metadata(), metadata);
}

TEST_F(SafetensorsTest, ViewOutlivesTheReaderAndNeverChangesTheFile) {
  save_safetensors(path_, {{"w", torch::ones({3})}});
  at::Tensor view;
  {
    const SafetensorsReader reader(path_);
    view = reader.view("w");
    EXPECT_EQ(view.data_ptr(), reader.view("w").data_ptr());
    EXPECT_NE(view.data_ptr(), reader.copy("w").data_ptr());
  }
  view.fill_(7);
  EXPECT_TRUE(view.equal(torch::full({3}, 7.0)));
  EXPECT_TRUE(SafetensorsReader(path_).copy("w").equal(torch::ones({3})));
}

TEST_F(SafetensorsTest, MisalignedValuesOfOtherWritersAreCopied) {
  const std::string header =
      "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}";
  write_text(path_, raw_file(header, 9));
  const SafetensorsReader reader(path_);
  const auto view = reader.view("w");
  EXPECT_TRUE(view.equal(torch::zeros({2})));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data_ptr()) % 4, 0U);
}

TEST_F(SafetensorsTest, BadNamesDtypesAndLayoutsAreRefusedBeforeWriting) {
  const auto one = torch::ones({1});
  const auto refused = [&](const NamedTensors& tensors,
                           const std::string& expected) {
    EXPECT_ERROR(save_safetensors(path_, tensors), c10::ValueError, expected);
  };
  refused({{"", one}}, "''");
  refused({{"__metadata__", one}}, "__metadata__");
  refused({{"w", one}, {"w", one}}, "'w' is given twice");
  refused({{"\xff", one}}, "UTF-8");
  refused({{"w", at::Tensor()}}, "'w' is undefined");
  refused({{"w", one.to(torch::kComplexDouble)}}, "ComplexDouble");
  refused({{"w", one.to_sparse()}}, "Sparse");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SafetensorsTest, FailedSaveLeavesTheOldFileAndNoTemporaryOne) {
  save_safetensors(path_, {{"w", torch::ones({2})}});
  {
    const FileSizeLimit limit(1 << 16); // in the middle of the values
    EXPECT_ERROR(
        save_safetensors(path_, {{"w", torch::zeros({100'000})}}),
        CheckpointError,
        path_.c_str(),
        "File too large");
  }
  EXPECT_TRUE(SafetensorsReader(path_).copy("w").equal(torch::ones({2})));
  EXPECT_EQ(folder_.filenames(), std::vector<std::string>{"model.safetensors"});
  EXPECT_ERROR(
      save_safetensors(folder_.path() + "/none/model", {}),
      CheckpointError,
      "none/model",
      "No such file");
}

TEST_F(SafetensorsTest, FilesThatCannotBeReadAreNamedWithTheReason) {
  EXPECT_ERROR(
      SafetensorsReader(folder_.path() + "/none"),
      CheckpointError,
      "/none",
      "No such file");
  EXPECT_ERROR(
      SafetensorsReader(folder_.path()), CheckpointError, "is not a file");
  write_text(path_, "");
  EXPECT_ERROR(SafetensorsReader{path_}, CheckpointError, "is empty");
  write_text(path_, "abc");
  EXPECT_ERROR(SafetensorsReader{path_}, CheckpointError, "has 3 bytes");
  save_safetensors(path_, {{"w", torch::ones({2})}});
  EXPECT_ERROR(
      SafetensorsReader(path_).view("v"), CheckpointError, "no tensor 'v'");
}

TEST_F(SafetensorsTest, LyingHeaderLengthIsRefused) {
  std::string content = raw_file("{}", 0);
  content[0] = 3;
  write_text(path_, content);
  EXPECT_ERROR(
      SafetensorsReader{path_}, CheckpointError, "at byte 0", "has 3 bytes");
  content[7] = '\xff';
  write_text(path_, content);
  EXPECT_ERROR(SafetensorsReader{path_}, CheckpointError, "at byte 0");
}

TEST_F(SafetensorsTest, BadJsonIsRefusedNamingTheByte) {
  expect_refused("{\"w\"!", 0, {"not JSON at byte 12"});
  expect_refused("", 0, {"not JSON at byte 8"});
  expect_refused("{} x", 0, {"not JSON at byte 11"});
  expect_refused("[]", 0, {"an array"});
  expect_refused("3", 0, {"a number"});
  expect_refused(std::string(100'000, '['), 0, {"an array"});
  expect_refused("{\"w\":{\"a\":{\"b\":{}}}}", 0, {"'w'", "unknown field"});
  expect_refused("{\"w\":3}", 0, {"'w'", "a number"});
  expect_refused("{\"__metadata__\":{\"a\":3}}", 0, {"metadata", "a number"});
  expect_refused("{\"__metadata__\":{\"a\":[]}}", 0, {"metadata", "an array"});
}

TEST_F(SafetensorsTest, DuplicatesAreRefused) {
  const std::string entry =
      "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  expect_refused("{\"w\":" + entry + ",\"w\":" + entry + "}", 0, {"'w' twice"});
  expect_refused(
      "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, {"'a' twice"});
  expect_refused(
      one_tensor("\"dtype\":\"U8\",\"dtype\":\"U8\""), 0, {"'dtype' twice"});
}

TEST_F(SafetensorsTest, WrongFieldsAreRefusedNamingTheTensor) {
  const std::string shape = "\"shape\":[2],";
  const std::string offsets = "\"data_offsets\":[0,2]";
  const std::string dtype = "\"dtype\":\"U8\",";
  expect_refused(one_tensor(shape + offsets), 2, {"'w'", "no 'dtype'"});
  expect_refused(one_tensor(dtype + offsets), 2, {"'w'", "no 'shape'"});
  expect_refused(
      one_tensor("\"dtype\":\"U8\",\"shape\":[2]"), 2, {"no 'data_offsets'"});
  expect_refused(
      one_tensor("\"dtype\":\"F6_E2M3\"," + shape + offsets), 2, {"F6_E2M3"});
  expect_refused(one_tensor("\"dtype\":4"), 2, {"'w'", "a number at 'dtype'"});
  expect_refused(
      one_tensor(dtype + "\"shape\":[-2]," + offsets), 2, {"negative"});
  expect_refused(
      one_tensor(dtype + "\"shape\":[2.0]," + offsets), 2, {"'w'", "2.0"});
  expect_refused(
      one_tensor(dtype + "\"shape\":[null]," + offsets), 2, {"'w'", "null"});
  expect_refused(
      one_tensor(dtype + "\"shape\":[[2]]," + offsets), 2, {"an array"});
  expect_refused(
      one_tensor(dtype + shape + "\"data_offsets\":[0]"), 2, {"got 1"});
  expect_refused(
      one_tensor(dtype + shape + "\"data_offsets\":[0,1,2]"), 2, {"more than"});
}

TEST_F(SafetensorsTest, ShapesThatOverflowOrDisagreeWithTheBytesAreRefused) {
  const auto header = [](const std::string& shape) {
    return one_tensor(
        "\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[0,8]");
  };
  expect_refused(header("3"), 8, {"'w'", "has 8 bytes", "needs 12"});
  expect_refused(header("4294967296,4294967296"), 8, {"'w'", "beyond 64 bits"});
  expect_refused(
      header("18446744073709551615,2"), 8, {"'w'", "beyond 64 bits"});
  expect_refused(header("0,9223372036854775807"), 8, {"beyond 64 bits"});
  expect_refused(header("99999999999999999999"), 8, {"'w'", "99999"});
  std::string many = "1";
  for (int i = 0; i < 64; ++i) {
    many += ",1";
  }
  expect_refused(header(many), 8, {"more than 64"});
  expect_refused(
      one_tensor("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"),
      1,
      {"should be even"});
}

TEST_F(SafetensorsTest, OffsetsOutsideOverlappingOrWithGapsAreRefused) {
  const auto two = [](const std::string& first, const std::string& second) {
    const std::string fields = "\"dtype\":\"U8\",\"shape\":[2],";
    return "{\"a\":{" + fields + "\"data_offsets\":" + first + "},\"b\":{" +
           fields + "\"data_offsets\":" + second + "}}";
  };
  expect_refused(two("[0,2]", "[2,4]"), 3, {"'b'", "truncated"});
  expect_refused(two("[2,0]", "[2,4]"), 4, {"'a'", "2 to 0"});
  expect_refused(
      two("[0,2]", "[18446744073709551614,18446744073709551615]"), 4, {"'b'"});
  expect_refused(two("[0,2]", "[1,3]"), 3, {"'b'", "overlap"});
  expect_refused(two("[0,2]", "[3,5]"), 5, {"'b'", "gap"});
  expect_refused(two("[1,3]", "[3,5]"), 5, {"'a'", "gap"});
  expect_refused(two("[0,2]", "[2,4]"), 5, {"the tensors", "end at byte"});
}

TEST_F(SafetensorsTest, BoolsOtherThanZeroAndOneAreRefused) {
  std::string content = raw_file(
      one_tensor("\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]"), 2);
  content.back() = 2;
  write_text(path_, content);
  const SafetensorsReader reader(path_);
  const auto byte = std::to_string(content.size() - 1);
  EXPECT_ERROR(reader.view("w"), CheckpointError, "'w'", byte.c_str());
  EXPECT_ERROR(reader.copy("w"), CheckpointError, "'w'");
}

// Whatever the bytes are: tensors or a CheckpointError, nothing else.
TEST_F(SafetensorsTest, RandomDamageNeverCrashes) {
  save_safetensors(
      path_,
      {{"a", torch::rand({3, 2})},
       {"b", torch::tensor({true, false})},
       {"c", torch::empty({0, 4}, torch::kHalf)}},
      {{"note", "text"}});
  const std::string sound = read_text(path_);
  std::mt19937 random(0);
  const int trials = long_run() ? 100'000 : 3'000;
  int refused = 0;
  for (int i = 0; i < trials; ++i) {
    write_text(path_, damaged(sound, random));
    try {
      for (const auto& [name, tensor] : load_safetensors(path_)) {
        tensor.to(torch::kFloat).sum();
      }
    } catch (const CheckpointError& error) {
      ++refused;
      EXPECT_THAT(error.msg(), ::testing::HasSubstr(path_));
    }
  }
  EXPECT_GT(refused, trials / 2);
}

} // namespace
} // namespace ampkit::io
