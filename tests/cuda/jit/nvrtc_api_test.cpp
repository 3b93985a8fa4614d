// NVRTC as it is on this machine: version, compiles, logs, and that it reads nothing but what it is given.
#include "cuda/jit/nvrtc_api.h"

#include "nvrtc_fixture.h"

namespace fourfold::cuda {
namespace {

const std::vector<std::string> kOptions = {"--gpu-architecture=sm_80"};

using NvrtcApiTest = NvrtcTest;

TEST_F(NvrtcApiTest, HasAVersionAPathAndArchitectures) {
  EXPECT_GE(std::stoi(nvrtc->version()), 12);
  EXPECT_NE(nvrtc->version().find('.'), std::string::npos);
  EXPECT_TRUE(fs::exists(nvrtc->path())) << nvrtc->path();
  const std::vector<int>& known = nvrtc->architectures();
  EXPECT_TRUE(std::is_sorted(known.begin(), known.end()));
  EXPECT_TRUE(std::binary_search(known.begin(), known.end(), 90));
}

TEST_F(NvrtcApiTest, CompilesToAnElfImageWithoutAWord) {
  const std::vector<NamedSource> sources = {{"k.cu", "extern \"C\" __global__ void k() {}"}};
  const NvrtcOutput output = nvrtc->compile(sources, kOptions);
  EXPECT_EQ(output.result, NvrtcResult::success);
  EXPECT_EQ(output.log, "");
  ASSERT_GT(output.image.size(), 100u);
  EXPECT_EQ(output.image[0], std::byte{0x7f});
  EXPECT_EQ(output.image[1], std::byte{'E'});
}

TEST_F(NvrtcApiTest, AFaultInTheSourceIsInTheLogWithFileAndLine) {
  const std::vector<NamedSource> sources = {{"dir/k.cu", "\nint broken = ;"}};
  const NvrtcOutput output = nvrtc->compile(sources, kOptions);
  EXPECT_EQ(output.result, NvrtcResult::compilation);
  EXPECT_TRUE(output.image.empty());
  EXPECT_NE(output.log.find("dir/k.cu(2)"), std::string::npos) << output.log;
}

TEST_F(NvrtcApiTest, AnUnknownOptionIsReportedAsSuch) {
  const std::vector<NamedSource> sources = {{"k.cu", "extern \"C\" __global__ void k() {}"}};
  const std::vector<std::string> options = {"--no-such-option"};
  const NvrtcOutput output = nvrtc->compile(sources, options);
  EXPECT_EQ(output.result, NvrtcResult::invalid_option);
  EXPECT_NE(output.log.find("no-such-option"), std::string::npos) << output.log;
}

TEST_F(NvrtcApiTest, TextsNeedNoClosingZero) {
  const std::string text = "extern \"C\" __global__ void k() {}garbage";
  const std::vector<NamedSource> sources = {{"k.cu", std::string_view(text).substr(0, text.size() - 7)}};
  EXPECT_EQ(nvrtc->compile(sources, kOptions).result, NvrtcResult::success);
}

TEST(NvrtcApi, AMissingFileIsUnavailableAndNamed) {
  try {
    NvrtcApi::open_file("/nowhere/libnvrtc.so.13");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find("/nowhere/libnvrtc.so.13"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("nvidia-cuda-nvrtc"), std::string::npos) << "the remedy";
  }
}

TEST(NvrtcApi, ALibraryThatIsNoNvrtcIsRefusedByTheFirstMissingEntryPoint) {
  try {
    NvrtcApi::open_file("libm.so.6");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find("nvrtcVersion"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fourfold::cuda
