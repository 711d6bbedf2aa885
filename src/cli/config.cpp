// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/shown_addresses.hpp"
#include "cli/table.hpp"

namespace cukiln::cli {

namespace {

/// Returns the value without secrets, since people paste this output into bug reports.
std::string public_value(const Setting& setting) {
  return setting.name == "remote" ? shown_addresses(setting.value) : setting.value;
}

/// Formats a value for the table: `2147483648 (2.0 GiB)`.
std::string shown_value(const Setting& setting) {
  const std::string value = public_value(setting);
  const auto bytes = setting.name == "max_size" ? parse_bytes(value) : Result<std::uint64_t>(0);
  return bytes && *bytes != 0 ? fmt::format("{} ({})", value, human_bytes(*bytes)) : value;
}

class ConfigCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"config",
            "",
            "show every setting and where it comes from",
            "Shows each setting, its value and its origin. The first of these that sets it wins: a "
            "flag, the environment (CUKILN_ and the name in upper case), "
            "$XDG_CONFIG_HOME/cukiln/config.toml, /etc/cukiln/config.toml, the default.",
            {{"cukiln config", "every setting"},
             {"CUKILN_MAX_SIZE=512MiB cukiln config", "the settings in another environment"}}};
  }

  void add_options(CLI::App&) override {}

  Exit run(Context& context) override {
    const Settings& settings = context.settings();
    if (context.json()) {
      Json list = Json::array();
      for (const Setting& setting : settings.all) {
        list.push_back(Json{
            {"name", setting.name}, {"value", public_value(setting)}, {"origin", setting.origin}});
      }
      Json files = Json::array();
      for (const ConfigFile& file : settings.files) {
        files.push_back(Json{{"path", file.path}, {"exists", file.exists}});
      }
      context.print_json(Json{{"settings", std::move(list)},
                              {"files", std::move(files)},
                              {"warnings", settings.warnings}});
      return Exit::done;
    }
    Table table({{"SETTING"},
                 {"VALUE", Column::Align::left, true, 16},
                 {"FROM", Column::Align::left, true, 20}});
    for (const Setting& setting : settings.all) {
      const bool is_default = setting.origin == "default";
      table.add({{setting.name, Color::bold},
                 {setting.value.empty() ? "-" : shown_value(setting),
                  is_default ? Color::plain : Color::cyan},
                 {setting.origin, is_default ? Color::dim : Color::plain}});
    }
    Table files({{""}, {"", Column::Align::left, true, 20}});
    for (const ConfigFile& file : settings.files) {
      files.add({{file.exists ? "found" : "not there", file.exists ? Color::cyan : Color::dim},
                 file.path});
    }
    context.print(table.text(context.out()) + heading(context.out(), "Configuration files") +
                  files.text(context.out()));
    return Exit::done;
  }
};

}  // namespace

std::unique_ptr<Command> make_config() { return std::make_unique<ConfigCommand>(); }

}  // namespace cukiln::cli
