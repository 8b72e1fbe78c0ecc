#include <ampkit/io/torch_state.h>

#include <limits>

#include <torch/torch.h>

#include <ampkit/error.h>
#include <ampkit/io/module_state.h>

#include "io/temporary_folder.h"
#include "io/torch_archive_builder.h"
#include "support/errors.h"

namespace ampkit::io {
namespace {

TorchValue round_trip(const TorchValue& value) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.pt";
  save_torch_state(path, value);
  EXPECT_EQ(folder.filenames(), std::vector<std::string>{"file.pt"});
  return load_torch_state(path);
}

TEST(TorchStateTest, ScalarsAndContainersComeBack) {
  TorchDict inner;
  inner.set(3, "three");
  inner.set(-1, nullptr);
  TorchDict dict;
  dict.set("bool", true);
  dict.set("small", 7);
  dict.set("negative", -70000);
  dict.set("large", std::numeric_limits<int64_t>::min());
  dict.set("real", 0.1);
  dict.set("text", "größer ∞");
  dict.set("dtype", at::kBFloat16);
  dict.set("list", TorchList{{1, TorchTuple{{}}, TorchTuple{{2.5, "x"}}}});
  dict.set("inner", inner);
  const TorchValue loaded = round_trip(dict);
  const TorchDict& found = loaded.dict();
  EXPECT_EQ(found.kind(), TorchDictKind::plain);
  EXPECT_EQ(found.size(), dict.size());
  EXPECT_TRUE(found.at("bool").boolean());
  EXPECT_EQ(found.at("small").integer(), 7);
  EXPECT_EQ(found.at("negative").integer(), -70000);
  EXPECT_EQ(found.at("large").integer(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(found.at("real").real(), 0.1);
  EXPECT_EQ(found.at("text").text(), "größer ∞");
  EXPECT_EQ(found.at("dtype").dtype(), at::kBFloat16);
  const auto& list = found.at("list").items();
  ASSERT_EQ(list.size(), 3U);
  EXPECT_TRUE(list[1].items().empty());
  EXPECT_EQ(list[2].items()[1].text(), "x");
  const TorchDict& inside = found.at("inner").dict();
  EXPECT_EQ(inside.at(3).text(), "three");
  EXPECT_TRUE(inside.at(-1).is_none());
  EXPECT_EQ(inside.entries().front().first, TorchKey(3));
}

TEST(TorchStateTest, InfinityAndNanComeBack) {
  const double infinity = std::numeric_limits<double>::infinity();
  const TorchValue loaded =
      round_trip(TorchList{{infinity, -infinity, std::nan("")}});
  EXPECT_EQ(loaded.items()[0].real(), infinity);
  EXPECT_EQ(loaded.items()[1].real(), -infinity);
  EXPECT_TRUE(std::isnan(loaded.items()[2].real()));
}

TEST(TorchStateTest, TiedAndNonContiguousTensorsStayViewsOfOneStorage) {
  const auto base = torch::arange(12.0).reshape({3, 4});
  TorchDict dict;
  dict.set("base", base);
  dict.set("transposed", base.t());
  dict.set("column", base.select(1, 2));
  dict.set("expanded", torch::ones({1}).expand({5}));
  const TorchValue loaded = round_trip(dict);
  const TorchDict& found = loaded.dict();
  for (const auto& [key, value] : dict.entries()) {
    const auto& tensor = found.at(key).tensor();
    EXPECT_TRUE(tensor.equal(value.tensor())) << describe_key(key);
    EXPECT_EQ(tensor.strides(), value.tensor().strides()) << describe_key(key);
  }
  found.at("column").tensor().fill_(-1);
  EXPECT_EQ(found.at("base").tensor()[1][2].item<float>(), -1);
  EXPECT_EQ(found.at("transposed").tensor()[2][1].item<float>(), -1);
}

TEST(TorchStateTest, OneStorageSeenInTwoDtypesComesBack) {
  const auto floats = torch::randn({4});
  TorchDict dict;
  dict.set("floats", floats);
  dict.set("bytes", floats.view(at::kByte));
  const TorchValue loaded = round_trip(dict);
  const TorchDict& found = loaded.dict();
  EXPECT_TRUE(found.at("bytes").tensor().equal(floats.view(at::kByte)));
  EXPECT_EQ(
      found.at("bytes").tensor().data_ptr(),
      found.at("floats").tensor().data_ptr());
}

TEST(TorchStateTest, RequiresGradAndConjugatesComeBack) {
  TorchDict dict;
  dict.set("trained", torch::ones({2}).requires_grad_());
  dict.set("frozen", torch::ones({2}));
  const auto complex = torch::randn({2}, at::kComplexFloat);
  dict.set("conjugate", complex.conj());
  const TorchValue loaded = round_trip(dict);
  EXPECT_TRUE(loaded.dict().at("trained").tensor().requires_grad());
  EXPECT_TRUE(loaded.dict().at("trained").tensor().is_leaf());
  EXPECT_FALSE(loaded.dict().at("frozen").tensor().requires_grad());
  EXPECT_TRUE(loaded.dict().at("conjugate").tensor().equal(complex.conj()));
}

TEST(TorchStateTest, AttributesOfAnOrderedDictComeBack) {
  TorchDict version;
  version.set("version", 2);
  TorchDict metadata(TorchDictKind::ordered);
  metadata.set("", version);
  TorchDict attributes;
  attributes.set("_metadata", metadata);
  TorchDict dict(TorchDictKind::ordered);
  dict.set("weight", torch::ones({1}));
  dict.set_attributes(attributes);
  const TorchValue loaded = round_trip(dict);
  ASSERT_EQ(loaded.dict().kind(), TorchDictKind::ordered);
  ASSERT_NE(loaded.dict().attributes(), nullptr);
  EXPECT_EQ(
      loaded.dict()
          .attributes()
          ->at("_metadata")
          .dict()
          .at("")
          .dict()
          .at("version")
          .integer(),
      2);
}

TEST(TorchStateTest, StateDictGoesThereAndBack) {
  const torch::nn::BatchNorm1d module(3);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.pt";
  save_torch_state(path, module_state(*module));
  const StateDict state = to_state_dict(load_torch_state(path));
  const StateDict expected = module_state(*module);
  ASSERT_EQ(state.size(), expected.size());
  for (const auto& [name, value] : expected.entries()) {
    EXPECT_TRUE(state.tensor(name).equal(std::get<at::Tensor>(value))) << name;
  }
}

TEST(TorchStateTest, ToStateDictListsAllThatHasNoPlace) {
  TorchDict dict;
  dict.set("weight", torch::ones({1}));
  dict.set(0, 1.0);
  dict.set("betas", TorchTuple{{0.9, 0.999}});
  dict.set("foreach", nullptr);
  EXPECT_ERROR(
      to_state_dict(dict),
      c10::Error,
      "the key 0 is not a name",
      "'betas' is tuple of 2",
      "'foreach' is None");
}

TEST(TorchStateTest, WhatCannotBeSavedIsNamedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.pt";
  TorchDict inner;
  inner.set("table", torch::eye(2).to_sparse());
  TorchDict dict;
  dict.set("model", inner);
  EXPECT_ERROR(
      save_torch_state(path, dict), c10::ValueError, "['model']['table']");
  EXPECT_ERROR(
      save_torch_state(path, TorchList{{"ok", "\xFF"}}),
      c10::ValueError,
      "[1]",
      "UTF-8");
  TorchValue deep;
  for (int i = 0; i < 101; ++i) {
    deep = TorchList{{deep}};
  }
  EXPECT_ERROR(save_torch_state(path, deep), c10::ValueError, "100 levels");
  EXPECT_TRUE(folder.filenames().empty());
}

TEST(TorchStateTest, FullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.pt";
  save_torch_state(path, TorchValue(1));
  {
    const FileSizeLimit limit(10'000);
    EXPECT_ERROR(
        save_torch_state(path, torch::zeros({100'000})), CheckpointError, path);
  }
  EXPECT_EQ(load_torch_state(path).integer(), 1);
  EXPECT_EQ(folder.filenames(), std::vector<std::string>{"file.pt"});
}

TEST(TorchStateTest, WrongTypeSaysWhatIsThere) {
  TorchDict dict;
  dict.set("step", 3);
  EXPECT_ERROR(
      (void)TorchValue(dict).dict().at("step").tensor(),
      c10::Error,
      "should be a tensor",
      "integer 3");
  EXPECT_ERROR((void)dict.at("lr"), c10::Error, "'lr'");
  EXPECT_ERROR(TorchValue(at::Tensor()), c10::ValueError, "undefined");
  EXPECT_ERROR(
      dict.set_attributes(TorchDict()), c10::ValueError, "only an OrderedDict");
}

} // namespace
} // namespace ampkit::io
