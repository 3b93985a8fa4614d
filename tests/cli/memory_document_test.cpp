// docs/memory.md shows what the program prints: its commands are run again and every line is looked for.
#include "program.h"

namespace fourfold::cli_test {
namespace {

/// Words of a shell line with single quotes.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (const char c : line + " ") {
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any || !word.empty()) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
    }
  }
  return words;
}

struct Example {
  std::string command;
  std::vector<std::string> output;
};

std::vector<Example> examples_of(const std::string& document) {
  std::vector<Example> examples;
  std::istringstream text(document);
  std::string line;
  bool inside = false;
  while (std::getline(text, line)) {
    if (line == "```console") {
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside && line.rfind("$ fourfold ", 0) == 0) {
      std::string command = line.substr(2);
      while (command.ends_with('\\') && std::getline(text, line)) {
        command.pop_back();
        command += line.substr(line.find_first_not_of(' '));
      }
      examples.push_back({command, {}});
    } else if (inside && !examples.empty()) {
      examples.back().output.push_back(line);
    }
  }
  return examples;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(MemoryDocument, ShowsWhatTheProgramPrints) {
  const std::vector<Example> examples = examples_of(read_bytes(kSource + "/docs/memory.md"));
  ASSERT_GE(examples.size(), 8u);
  std::size_t compared = 0;
  for (const Example& example : examples) {
    std::vector<std::string> words = words_of(example.command);
    words.erase(words.begin());
    for (std::string& word : words)
      if (word.rfind("examples/", 0) == 0) word = kSource + "/" + word;
    const std::vector<std::string> printed = lines_of(run(words).out);
    std::size_t at = 0;
    for (std::string line : example.output) {
      if (line == "...") continue;
      const bool cut = line.ends_with(" ...");
      if (cut) line.resize(line.size() - 4);
      const auto fits = [&](const std::string& text) { return cut ? text.rfind(line, 0) == 0 : text == line; };
      while (at < printed.size() && !fits(printed[at])) ++at;
      ASSERT_LT(at, printed.size()) << example.command << "\nno longer prints\n"
                                    << line << "\nrun tools/refresh_document PROGRAM docs/memory.md";
      ++at;
      ++compared;
    }
  }
  EXPECT_GE(compared, 40u);
}

}  // namespace
}  // namespace fourfold::cli_test
