# SPDX-License-Identifier: Apache-2.0
"""Commands that touch no store: help, version, errors of usage, config, completion."""

import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from cli import CUKILN, CliTest, STORE, USAGE

COMMANDS = ["doctor", "compile", "preload", "ls", "show", "explain", "stats", "verify", "gc", "rm",
         "export", "import", "fits", "keygen", "record", "run", "daemon", "config", "completion"]  # fmt: skip


class Help(CliTest):
    def test_help_names_every_command_and_exit_code(self):
        text = self.run_cli("--help").out
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} +\w")
        for code in range(5):
            self.assertRegex(text, rf"(?m)^  {code}  \w")

    def test_every_command_has_help_with_usage_and_examples(self):
        for command in COMMANDS:
            text = self.run_cli(command, "--help").out
            self.assertIn(f"  cukiln {command}", text)
            self.assertRegex(text, rf"(?s)Examples:\n  .*cukiln {command}")
            self.assertEqual(text, self.run_cli("help", command).out)
            self.assertEqual(text, self.run_cli("--help", command).out)
            self.assertEqual(text, self.run_cli(command, "-h", "--no-such-option").out)
        self.assertEqual(self.run_cli("help", "help").out, self.run_cli("--help").out)

    def test_help_fits_eighty_columns(self):
        for command in COMMANDS:
            for line in self.run_cli(command, "--help").out.splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_help_makes_no_store(self):
        self.run_cli("ls", "--help")
        self.run_cli("--version")
        self.assertFalse(self.store.exists())

    def test_version(self):
        self.assertRegex(self.run_cli("--version").out, r"^cukiln \d+\.\d+\.\d+\n$")
        self.assertRegex(self.run_json("--version")["version"], r"^\d+\.\d+\.\d+$")

    def test_no_command_shows_help_on_stderr(self):
        result = self.run_cli(expect=USAGE)
        self.assertEqual(result.out, "")
        self.assertIn("Usage:", result.err)


class Mistakes(CliTest):
    def check(self, *arguments, says):
        result = self.run_cli(*arguments, expect=USAGE)
        self.assertEqual(result.out, "")
        self.assertRegex(result.err, "^error: ")
        self.assertIn(says, result.err)
        error = self.run_json(*arguments, expect=USAGE)["error"]
        self.assertEqual(set(error), {"code", "message"})
        self.assertIn(says, error["message"])
        self.assertFalse(self.store.exists())

    def test_unknown_command(self):
        self.check("frobnicate", says='unknown command "frobnicate"')
        self.check("complie", says='did you mean "compile"?')

    def test_unknown_option(self):
        self.check("ls", "--no-such", says='unknown option "--no-such"')
        self.check("ls", "--jsno", says='did you mean "--json"?')
        self.check("compile", "add.cu", "--qiet", says='did you mean "--quiet"?')
        self.check("--no-such", "ls", says='unknown option "--no-such"')
        self.check("verify", "--deep", says='unknown option "--deep"; see')  # not --help
        self.check("-v", "compile", "add.cu", says='"-v" belongs behind the command: cukiln compile -v')
        self.check("compile", "add.cu", "-Ofast2", says='did you mean "--Ofast-compile"?')
        self.check("compile", "add.cu", "--flag", "-Ofast2", says="--Ofast-compile")

    def test_missing_values_and_arguments(self):
        self.check("compile", says="a source is missing")
        self.check("compile", "add.cu", "--arch", says="--arch needs a value")
        self.check("show", says="a key or name is missing")
        self.check("rm", says="a key or name is missing")
        self.check("rm", "--all", "--name", "x", says="exclude each other")
        self.check("explain", says="a file, a manifest or two keys are missing")
        self.check("completion", says="a shell is missing")

    def test_too_many_arguments(self):
        self.check("ls", "everything", says='"everything" is one argument too many')
        self.check("show", "abcdef", "abcdef", says="one key at a time")
        self.check("rm", "--all", "abcdef", says="exclude each other")
        self.check("show", "abcdef", "--ptx", "--sass", says="exclude each other")

    def test_invalid_values(self):
        self.check("compile", "add.cu", "--arch", "sm_1", says='unknown target "sm_1"')
        self.check("ls", "--arch", "volta", says='unknown target "volta"')
        self.check("ls", "--sort", "beauty", says="age, size, time or hits")
        self.check("gc", "--max-size", "3X", says='invalid size "3X"')
        self.check("gc", "--max-age", "3", says='invalid duration "3"')
        self.check("preload", "--devices", "first", says='invalid --devices "first"')
        self.check("preload", "--jobs", "0", says='invalid --jobs "0"')
        self.check("completion", "tcsh", says='unknown shell "tcsh": expected bash, zsh or fish')
        self.check("--color", "sometimes", "ls", says="auto, always or never")
        self.check("show", "abc", "-o", "file", says="-o needs --source")
        self.check("ls", "--blobs", "--arch", "sm_90a", says="--blobs excludes --arch: a blob has no target")
        self.check("ls", "--blobs", "--sort", "time", says="--blobs excludes --sort time")
        self.check("compile", "add.cu", "-o", "", says='-o is ""; expected a file')
        self.check("--store", "", "ls", says='--store is ""; expected a folder')

    def test_missing_sources_and_manifests(self):
        self.check("compile", "nowhere.cu", says='there is no source "nowhere.cu"')
        self.check("compile", ".", says="is a folder")
        self.check("compile", "kernels.json", says="cukiln preload kernels.json --no-load")
        self.check("explain", "nowhere.cu", says='there is no source "nowhere.cu"')
        self.check("preload", "nowhere.json", says="nowhere.json")

    def test_invalid_compiler_flags(self):
        self.check("compile", "add.cu", "--flag", "--frobnicate", says='"--frobnicate"')
        self.check("compile", "add.cu", "--fdevice-time-trace=t", says='"--fdevice-time-trace=t" is refused')
        self.check("compile", "add.cu", "-D", "=1", says="-D takes NAME")

    def test_outputs_are_checked_before_the_work(self):
        for arguments in (("compile", "add.cu"), ("export",), ("show", "abcdef", "--source")):
            self.check(*arguments, "-o", "/nowhere/x", says="cannot write /nowhere/x: there is no folder /nowhere/")
        self.check("compile", "add.cu", "scale.cu", "-o", "x", says="one file for 2 modules")
        self.check("keygen", "-o", "/nowhere/x", says="cannot write /nowhere/x: there is no folder /nowhere/")
        self.check("record", "-o", "/nowhere/x", "--", "true", says="cannot write /nowhere/x: there is no folder /nowhere/")
        for arguments in (("export",), ("show", "abcdef", "--source"), ("keygen",)):
            self.check(*arguments, "-o", ".", says="cannot write .: it is a folder; name a file in it")
        self.check("record", "-o", ".", "--", "true", says="it is a folder")

    def test_a_manifest_allows_only_arch(self):
        self.write("m.json", '{"format":1,"modules":[]}')
        self.check("explain", "m.json", "-DX", says="allows no option but --arch")
        self.check("preload", "m.json", "--manifest", "m.json", says="name one at a time")

    def test_broken_manifest_says_where(self):
        self.write("m.json", '{"format":1,\n"modules":[],\n}')
        for line in (("preload", "m.json"), ("preload", "--manifest", "m.json"), ("explain", "m.json"),):
            self.check(*line, says="m.json: the manifest is not JSON: line 3, column 1: unexpected '}'; expected {")
        self.write("m.json", '{"format":1,"modules":[{"name":"a","sources":["add.cu"],"colour":1}]}')
        self.check("preload", "m.json", says="modules[0].colour")
        for text, found in (("", "not JSON: line 1, column 1: unexpected end of input"), ("[]", "a list"), ("3", "3"),
                            ("{}", 'an object without "format"'), ('{"format":1}', 'an object without "modules"')):  # fmt: skip
            self.write("m.json", text)
            self.check("preload", "m.json", says=f'm.json: the manifest is {found}; expected {{"format":1,"modules":[…]}}')
        self.write("m.json", '{"format":2,"modules":[]}')
        self.check("preload", "m.json", says="format: expected 1, found 2; a newer cukiln may have written it")
        self.write("m.json", '{"format":1,"modules":{}}')
        self.check("preload", "m.json", says="modules: expected a list of modules, found an object")


class Config(CliTest):
    def settings(self, *arguments, **options):
        document = self.run_json("config", *arguments, **options)
        return {s["name"]: (s["value"], s["origin"]) for s in document["settings"]}, document

    def test_every_setting_has_a_value_and_an_origin(self):
        settings, _ = self.settings(env={"CUKILN_MAX_SIZE": "1GiB"})
        self.assertEqual(settings["store"], (str(self.store), "environment CUKILN_STORE"))
        self.assertEqual(settings["max_size"], (str(1 << 30), "environment CUKILN_MAX_SIZE"))
        self.assertEqual(settings["offline"], ("0", "default"))

    def test_flag_before_and_after_the_command_wins(self):
        before = self.run_json("--store", "a", "config")
        after = self.run_json("config", "--store", "a")
        self.assertEqual(before, after)
        self.assertIn({"name": "store", "value": str(self.folder.resolve() / "a"),
                       "origin": "flag --store"}, after["settings"])  # fmt: skip

    def test_errors_in_a_configuration_file_are_warnings(self):
        self.write("config/cukiln/config.toml", 'max_size = "3GiB"\ncolour = "blue"\n')
        settings, document = self.settings()
        self.assertEqual(settings["max_size"][0], str(3 << 30))
        self.assertTrue(settings["max_size"][1].endswith("config.toml"))
        self.assertRegex(" ".join(document["warnings"]), 'unknown key "colour"')
        files = [{"path": str(self.folder / "config/cukiln/config.toml"), "exists": True},
                 {"path": "/etc/cukiln/config.toml", "exists": Path("/etc/cukiln/config.toml").exists()}]  # fmt: skip
        self.assertEqual(document["files"], files)
        self.assertRegex(self.run_cli("config").out, rf"(?m)^found +{files[0]['path']}$")
        self.assertRegex(self.run_cli("config").out, r"(?m)^max_size +3221225472 \(3\.\d* GiB\)")
        self.assertIn('warning: ', self.run_cli("config").err)
        self.assertEqual(self.run_cli("config", "--quiet").err, "")

    def test_a_misspelt_variable_is_warned_of(self):
        result = self.run_cli("config", env={"CUKILN_STOR": "/x"})
        self.assertEqual(result.err, "warning: CUKILN_STOR is not a setting; did you mean CUKILN_STORE?\n")
        result = self.run_cli("config", env={"CUKILN_WHOLLY_DIFFERENT": "1"})
        self.assertEqual(result.err, "warning: CUKILN_WHOLLY_DIFFERENT is not a setting; 'cukiln config' lists them\n")

    def test_a_relative_store_is_refused_with_its_origin(self):
        result = self.run_cli("ls", env={"CUKILN_STORE": "rel"}, expect=STORE)
        self.assertIn('environment CUKILN_STORE: the store\'s directory is "rel"; expected an absolute', result.err)

    def test_passwords_are_not_shown(self):
        remote = "redis://:pa55@a:1/p,http://b/c,s3+https://KEY:sec%2Fret@e/f"
        settings, _ = self.settings(env={"CUKILN_REMOTE": remote})
        self.assertEqual(settings["remote"][0], "redis://***@a:1/p,http://b/c,s3+https://***@e/f")
        for given, shown in (("http://h/x?token=pa55", "http://h/x?***"), ("u:pa55@h", "***@h"),
                             ("s3+http://K:pa55@h/b?region=r&x=pa55", "s3+http://***@h/b?region=r&***"),
                             ("http://u:pa?55@h/x", "http://***@h/x")):  # fmt: skip
            settings, _ = self.settings(env={"CUKILN_REMOTE": given})
            self.assertEqual(settings["remote"][0], shown)
        text = self.run_cli("config", env={"CUKILN_REMOTE": remote}).out
        self.assertNotRegex(text, "pa55|KEY|sec")

    def test_text(self):
        text = self.run_cli("config").out
        self.assertRegex(text, r"(?m)^SETTING +VALUE +FROM$")
        self.assertRegex(text, r"(?m)^log +warn +default$")


class Completion(CliTest):
    def test_scripts_name_commands_and_options(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.run_cli("completion", shell).out
            for word in [*COMMANDS, "max-age", "no-load", "sm_100a"]:
                self.assertIn(word, script, shell)
            self.assertEqual(self.run_json("completion", shell)["script"], script)

    def test_descriptions_are_whole(self):
        script = self.run_cli("completion", "fish").out
        self.assertIn("\tage, size, time or hits\n", script)
        self.assertIn("\tauto, always or never\n", script)

    def test_scripts_are_valid_for_installed_shells(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                script = self.run_cli("completion", shell).out
                subprocess.run([shell, "-n"], input=script.encode(), check=True, capture_output=True)

    def complete(self, *words):
        script = self.run_cli("completion", "bash").out
        line = " ".join(f"'{word}'" for word in words)
        path = f"PATH={CUKILN.rsplit('/', 1)[0]}:$PATH"
        asked = f"{path}\n{script}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n_cukiln\n"
        asked += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", asked], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, check=True)  # fmt: skip
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split("\n")) - {""}

    def test_bash_completes(self):
        self.assertEqual(self.complete("cukiln", "pre"), {"preload"})
        self.assertEqual(self.complete("cukiln", "--store", "x", "pre"), {"preload"})
        self.assertIn("--max-age", self.complete("cukiln", "gc", "--max"))
        self.assertIn("--json", self.complete("cukiln", "gc", "--"))
        self.assertEqual(self.complete("cukiln", "ls", "--sort", "s"), {"size"})
        self.assertEqual(self.complete("cukiln", "compile", "add"), {"add.cu"})
        self.assertEqual(self.complete("cukiln", "compile", "add.cu", "--arch", "sm_90"), {"sm_90a"})

    def test_bash_completes_the_words_that_a_command_takes(self):
        self.assertEqual(self.complete("cukiln", "daemon", "st"), {"start", "stop", "status"})
        self.assertEqual(self.complete("cukiln", "completion", "z"), {"zsh"})
        self.assertEqual(self.complete("cukiln", "help", "pre"), {"preload"})

    def test_bash_completes_files(self):
        self.write("two words.cu", "")
        self.assertEqual(self.complete("cukiln", "compile", "two"), {"two words.cu"})
        self.assertEqual(self.complete("cukiln", "compile", "add.cu", "-o", "two"), {"two words.cu"})
        self.assertEqual(self.complete("cukiln", "--store", "two"), {"two words.cu"})
        self.assertEqual(self.complete("cukiln", "gc", "two"), set())

    def test_bash_completes_keys_and_names_of_the_store(self):
        key = self.one_key()
        self.assertEqual(self.complete("cukiln", "show", key[:3]), {key})
        self.assertEqual(self.complete("cukiln", "show", "add"), {"add"} | ({key} if key.startswith("add") else set()))
        self.assertEqual(self.complete("cukiln", "explain", "add"), {"add", "add.cu"} | ({key} if key.startswith("add") else set()))

    def test_words_of_the_store_are_keys_and_names_that_no_shell_splits(self):
        self.write("two words.cu", 'extern "C" __global__ void two(int* x) {}\n')
        keys = {self.one_key(), self.one_key("two words.cu", "--arch", "sm_90a")}
        self.assertEqual(set(self.run_cli("completion", "--words").out.split("\n")), keys | {"add", ""})
        self.assertEqual(set(self.run_json("completion", "--words")["words"]), keys | {"add"})
        self.assertNotIn("--words", self.run_cli("help", "completion").out)


class Output(CliTest):
    def test_color_only_on_request_or_on_a_terminal(self):
        self.assertNotIn("\x1b", self.run_cli("config").out)
        self.assertIn("\x1b[1m", self.run_cli("config", "--color", "always").out)
        self.assertIn("\x1b[1m", self.run_on_terminal("config")[1])
        self.assertNotIn("\x1b[1m", self.run_on_terminal("config", "--color", "never")[1])

    # fault 459
    def test_no_color_and_dumb_terminals_are_respected(self):
        self.assertIn("\x1b[1m", self.run_on_terminal("config", env={"NO_COLOR": ""})[1])
        command = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")  # with a line that is written over
        for env in ({"NO_COLOR": "0"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b[1m", self.run_on_terminal("config", env=env)[1])
            self.assertIn("\x1b[1m", self.run_on_terminal("config", "--color", "always", env=env)[1])
        self.assertNotIn("\x1b", self.run_on_terminal(*command, env={"TERM": "dumb"})[1])
        self.assertIn("\x1b[K", self.run_on_terminal("--store", "other", *command, env={"NO_COLOR": "1", "TERM": "xterm"})[1])

    def test_tables_are_as_wide_as_the_terminal(self):
        env = {"CUKILN_WORKER": "/a/path/" + "x" * 200}
        for columns in (60, 80, 120):
            _, text = self.run_on_terminal("config", "--color", "never", columns=columns, env=env)
            self.assertEqual(max(map(len, text.splitlines())), columns)
            self.assertIn("…", text)

    def test_nothing_is_cut_without_a_terminal(self):
        worker = "/a/path/" + "x" * 200
        text = self.run_cli("config", env={"CUKILN_WORKER": worker, "COLUMNS": "60"}).out
        self.assertIn(worker, text)
        self.assertNotIn("…", text)

    def test_json_is_one_document_even_with_color(self):
        json.loads(self.run_cli("config", "--json", "--color", "always").out)

    def test_bytes_that_are_not_text_are_escaped_and_replaced(self):
        env = {"CUKILN_WORKER": b"/a/\xff\x1b[31m\nx\xe2\x80\xae"}
        text = self.run_cli("config", env=env).out
        self.assertIn(r"/a/\xff\x1b[31m\nx\u202e", text)
        self.assertIn("�", json.dumps(self.run_json("config", env=env), ensure_ascii=False))

    def test_full_disk_is_not_success(self):
        with open("/dev/full", "w") as full:
            result = self.run_cli("config", expect=1, stdout=full)
        self.assertRegex(result.err, re.compile("^error: stdout", re.M))


if __name__ == "__main__":
    unittest.main()
