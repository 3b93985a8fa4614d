// The problem grammar: what is read, what is refused, and that writing is the inverse of reading.
#include "plan/problem_text.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "fourfold/error.h"
#include "random_caps.h"

namespace fourfold {
namespace {

const char* const kSizes = "t64 k8 e128 h2048 i768";

Problem parse(const std::string& options) { return parse_problem(std::string(kSizes) + " " + options); }

TEST(ProblemText, ReadsTheSizes) {
  const Caps caps = parse_problem(kSizes).caps;
  EXPECT_EQ(caps.max_tokens, 64);
  EXPECT_EQ(caps.top_k, 8);
  EXPECT_EQ(caps.experts, 128);
  EXPECT_EQ(caps.hidden, 2048);
  EXPECT_EQ(caps.intermediate, 768);
}

TEST(ProblemText, DefaultsAreNvfp4Bf16Silu) {
  const Problem problem = parse_problem(kSizes);
  Caps expected;
  expected.max_tokens = 64;
  expected.top_k = 8;
  expected.experts = 128;
  expected.hidden = 2048;
  expected.intermediate = 768;
  EXPECT_EQ(problem.caps, expected);
  EXPECT_EQ(problem.caps.format, FormatSpec::nvfp4());
  EXPECT_EQ(problem.caps.activation_dtype, DType::bf16);
  EXPECT_EQ(problem.caps.activation.kind, ActivationKind::silu);
  EXPECT_EQ(problem.arch, "");
}

TEST(ProblemText, ReadsSeveralCountsAsWritten) {
  const Problem problem = parse_problem("t1,64,16 k8 e128 h2048 i768");
  EXPECT_EQ(problem.tokens, (std::vector<std::int64_t>{1, 64, 16}));
  EXPECT_EQ(problem.caps.max_tokens, 64);
}

TEST(ProblemText, WordsMayStandInAnyOrder) {
  EXPECT_EQ(parse_problem("i768 silu h2048 bf16 e128 nvfp4 k8   t64 ").caps, parse_problem(kSizes).caps);
}

TEST(ProblemText, ReadsEveryFormat) {
  EXPECT_EQ(parse("mxfp4").caps.format, FormatSpec::mxfp4());
  EXPECT_EQ(parse("int4").caps.format, FormatSpec::int4(32));
  EXPECT_EQ(parse("int4 g128").caps.format, FormatSpec::int4(128));
  EXPECT_EQ(parse("g128 zp int4").caps.format, FormatSpec::int4(128, true));
  EXPECT_EQ(parse("int4 grow").caps.format, FormatSpec::int4(0));
}

TEST(ProblemText, ReadsEveryActivationAndOption) {
  const Activation oai{ActivationKind::swiglu_oai, 7.f, 1.702f, -1.5f};
  EXPECT_EQ(parse("swiglu_oai limit=7 alpha=1.702 beta=-1.5").caps.activation, oai);
  EXPECT_EQ(parse("situ").caps.activation.kind, ActivationKind::situ);
  EXPECT_EQ(parse("gelu_tanh").caps.activation.kind, ActivationKind::gelu_tanh);
  EXPECT_EQ(parse("relu2").caps.activation.kind, ActivationKind::relu2);
}

TEST(ProblemText, ReadsTheFlags) {
  const Caps caps = parse("gate_up_bias on_input invariant eg256 f16").caps;
  EXPECT_TRUE(caps.gate_up_bias);
  EXPECT_FALSE(caps.down_bias);
  EXPECT_TRUE(caps.router_weight_on_input);
  EXPECT_TRUE(caps.batch_invariant);
  EXPECT_EQ(caps.global_experts, 256);
  EXPECT_EQ(caps.activation_dtype, DType::f16);
}

TEST(ProblemText, BiasMeansBoth) {
  EXPECT_TRUE(parse("bias").caps.gate_up_bias);
  EXPECT_TRUE(parse("bias").caps.down_bias);
  EXPECT_TRUE(parse("down_bias gate_up_bias").caps.gate_up_bias);
}

TEST(ProblemText, ReadsTheArchitecture) { EXPECT_EQ(parse("@sm_90a").arch, "sm_90a"); }

TEST(ProblemText, ZeroTokensAreACount) { EXPECT_EQ(parse_problem("t0 k1 e1 h8 i8").caps.max_tokens, 0); }

struct Refusal {
  const char* text;
  const char* part;
};

// `text` follows the sizes, which are words 1 to 5 and 22 bytes long: the next word starts in column 24.
TEST(ProblemText, RefusalsNameWordColumnAndWhatIsAccepted) {
  const Refusal table[] = {
      {"fp4", "word 6 \"fp4\" (column 24): unknown word"},
      {"bias nvfp5", "word 7 \"nvfp5\" (column 29): unknown word"},
      {"NVFP4", "unknown word"},
      {"t1", "t was given before"},
      {"k8", "k was given before"},
      {"nvfp4 mxfp4", "weight format was given before"},
      {"bf16 bf16", "activation dtype was given before"},
      {"silu situ", "activation was given before"},
      {"bias down_bias", "down_bias was given before"},
      {"gate_up_bias bias", "gate_up_bias was given before"},
      {"zp zp", "zp was given before"},
      {"g32 grow", "group size was given before"},
      {"invariant invariant", "invariant was given before"},
      {"on_input on_input", "on_input was given before"},
      {"limit=7 limit=8", "limit was given before"},
      {"eg8x", "\"8x\" is not a number made of digits"},
      {"eg-1", "\"-1\" is not a number made of digits"},
      {"eg+1", "\"+1\" is not a number made of digits"},
      {"eg9223372036854775808", "not below 2^63"},
      {"g0", "grow"},
      {"eg0", "at least one global expert"},
      {"g", "unknown word"},
      {"eg", "unknown word"},
      {"limit=", "not a finite decimal number"},
      {"limit=x", "not a finite decimal number"},
      {"limit=7x", "not a finite decimal number"},
      {"limit=nan", "not a finite decimal number"},
      {"limit=-inf", "not a finite decimal number"},
      {"limit=1e99", "outside the range of fp32"},
      {"gamma=1", "unknown word"},
      {"=", "unknown word"},
      {"@", "an architecture is made of"},
      {"@a/b", "an architecture is made of"},
      {"@sm90 bias", "nothing may follow"},
      {"@sm90 @sm80", "nothing may follow"},
      {"q8", "unknown word"},
      {"\t", "\\x09"},
      {"\xff\xfe", "\\xff\\xfe"},
  };
  for (const Refusal& row : table) {
    try {
      parse(row.text);
      ADD_FAILURE() << row.text << " was read";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::usage) << row.text;
      EXPECT_NE(text.find(row.part), std::string::npos) << text;
      EXPECT_NE(text.find("accepted: t64"), std::string::npos) << text;
    }
  }
}

TEST(ProblemText, RefusesMalformedCounts) {
  for (const char* tokens :
       {"t", "t,", "t1,", "t,1", "t1,,2", "t1;2", "t1.5", "t-1", "t1,-2", "t 1", "t9223372036854775808"})
    EXPECT_THROW(parse_problem(std::string(tokens) + " k8 e128 h2048 i768"), Error) << tokens;
}

TEST(ProblemText, EverySizeIsRequired) {
  const std::string words[] = {"t64", "k8", "e128", "h2048", "i768"};
  for (const std::string& missing : words) {
    std::string text;
    for (const std::string& word : words)
      if (word != missing) text += word + " ";
    try {
      parse_problem(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find("e.g. " + missing), std::string::npos) << error.what();
    }
  }
}

TEST(ProblemText, EmptyTextIsRefused) {
  EXPECT_THROW(parse_problem(""), Error);
  EXPECT_THROW(parse_problem("    "), Error);
}

TEST(ProblemText, LongWordsAreCutInMessages) {
  try {
    parse(std::string(100000, 'x'));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

TEST(ProblemText, WritesTheCanonicalForm) {
  EXPECT_EQ(problem_text(parse_problem(kSizes)), "t64 k8 e128 h2048 i768 nvfp4 bf16 silu");
  EXPECT_EQ(problem_text(parse("@sm90")), "t64 k8 e128 h2048 i768 nvfp4 bf16 silu @sm90");
  EXPECT_EQ(problem_text(parse("down_bias zp limit=7.0 int4 gate_up_bias eg256 g32 invariant f16")),
            "t64 k8 e128 h2048 i768 eg256 int4 zp f16 silu limit=7 bias invariant");
  EXPECT_EQ(problem_text(parse("int4 grow on_input down_bias")),
            "t64 k8 e128 h2048 i768 int4 grow bf16 silu down_bias on_input");
}

TEST(ProblemText, CapsAreAProblemOfOneCount) {
  EXPECT_EQ(caps_text(parse_problem("t1,64,16 k8 e128 h2048 i768").caps), "t64 k8 e128 h2048 i768 nvfp4 bf16 silu");
}

TEST(ProblemText, CapsOutsideTheRulesAreWrittenToo) {
  Caps caps;
  caps.activation_dtype = static_cast<DType>(99);
  caps.format.format = static_cast<WeightFormat>(99);
  caps.activation.kind = static_cast<ActivationKind>(99);
  EXPECT_FALSE(caps_text(caps).empty());
}

TEST(ProblemText, ReadingWhatWasWrittenGivesTheSameProblem) {
  std::mt19937_64 random(11);
  const char* arches[] = {"", "sm_90a", "cpu", "rtx-5090"};
  for (int round = 0; round < 20000; ++round) {
    Problem problem;
    problem.caps = random_caps(random);
    problem.tokens.assign(1 + random() % 4, 0);
    for (std::int64_t& tokens : problem.tokens) tokens = log_uniform(random, 0, problem.caps.max_tokens);
    problem.tokens[random() % problem.tokens.size()] = problem.caps.max_tokens;
    problem.arch = arches[random() % std::size(arches)];
    const std::string text = problem_text(problem);
    const Problem read = parse_problem(text);
    ASSERT_EQ(read.caps, problem.caps) << text;
    ASSERT_EQ(read.tokens, problem.tokens) << text;
    ASSERT_EQ(read.arch, problem.arch) << text;
    ASSERT_EQ(problem_text(read), text);
  }
}

TEST(ProblemText, ShuffledWordsGiveTheSameProblem) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 2000; ++round) {
    Problem problem;
    problem.caps = random_caps(random);
    problem.tokens = {problem.caps.max_tokens};
    std::istringstream stream(problem_text(problem));
    std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    std::shuffle(words.begin(), words.end(), random);
    std::string text;
    for (const std::string& word : words) text += word + "  ";
    ASSERT_EQ(parse_problem(text).caps, problem.caps) << text;
  }
}

// Arbitrary bytes, half of them made of the grammar's own words, either parse or throw usage.
TEST(ProblemText, AnyBytesParseOrThrowUsage) {
  const std::string alphabet("tkehigeg0123456789,=@ .-+xzpnvfp4mxint4bf16silurow\0\n\xff", 54);
  const char* words[] = {"t64", "k8", "e128", "h2048", "i768", "int4", "g32", "limit=", "1e9", "@a", "bias", "t"};
  std::mt19937_64 random(13);
  std::int64_t parsed = 0, refused = 0;
  for (int round = 0; round < 100000; ++round) {
    std::string text;
    const int pieces = static_cast<int>(random() % 12);
    for (int piece = 0; piece < pieces; ++piece) {
      if (round % 2)
        text += std::string(words[random() % std::size(words)]) + (random() % 8 ? " " : "");
      else if (random() % 2)
        text += alphabet[random() % alphabet.size()];
      else
        text += static_cast<char>(random());
    }
    try {
      const Problem problem = parse_problem(text);
      ASSERT_EQ(parse_problem(problem_text(problem)).caps, problem.caps) << text;
      ++parsed;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::usage) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(parsed, 0);
  EXPECT_GT(refused, 50000);
}

}  // namespace
}  // namespace fourfold
