# SPDX-License-Identifier: Apache-2.0
"""fits: whether a machine runs a manifest or a bundle without compiling; and images for registries."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import unittest

from cli import BINARIES, CliTest, ENVIRONMENT, FAILED, FAKE_DRIVER, USAGE

IMAGE = "application/vnd.oci.image.manifest.v1+json"
SIGNATURE = "cukiln.signature"


class Filled(CliTest):
    def setUp(self):
        super().setUp()
        self.manifest([{"name": "scale", "sources": ["scale.cu"], "targets": ["sm_90a"]},
                       {"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 1},
                        "targets": ["sm_90a", "sm_100a"]}])  # fmt: skip

    def manifest(self, modules):
        self.write("m.json", json.dumps({"format": 1, "modules": modules}))

    def fill(self):
        self.run_cli("preload", "m.json", "--no-load")
        self.run_cli("keygen", "-o", "k.key")

    def reasons(self, *arguments, **options):
        done = self.run_json("fits", *arguments, **options)
        self.assertEqual(done["fits"], not any(m["reason"] for m in done["modules"]))
        return {(m["name"], m["target"]): m["reason"] for m in done["modules"]}


class Manifests(Filled):
    def test_all_of_a_manifest_is_there_or_each_miss_is_named(self):
        self.assertEqual(set(self.reasons("m.json", expect=FAILED).values()), {"not in the store"})
        self.fill()
        self.assertEqual(set(self.reasons("m.json").values()), {""})
        self.assertIn("3 of 3 modules fit", self.run_cli("fits", "m.json").out)
        self.write("tile.cuh", "#define TILE 32\n")
        missed = self.reasons("m.json", expect=FAILED)
        self.assertRegex(missed.pop(("scale", "sm_90a")), "^header changed: .*/tile.cuh$")
        self.assertEqual(set(missed.values()), {""})
        self.assertRegex(self.reasons("m.json", "--arch", "sm_80", expect=FAILED)["add", "sm_80"],
                         r"^not in the store: target was sm_\d+a, is sm_80$")  # fmt: skip
        stats = self.run_json("stats")
        self.assertEqual((stats["hits"], stats["compiles"]), (0, 3))  # it counts as no use

    def test_targets_that_are_listed_are_not_compared(self):
        self.run_cli("preload", "m.json", "--no-load", "--arch", "sm_100a")
        self.assertEqual(self.reasons("m.json", expect=FAILED)["add", "sm_90a"], "not in the store")

    def test_an_evicted_entry_is_said_to_be_beside_one_with_another_header(self):
        self.fill()
        self.write("tile.cuh", "#define TILE 32\n")
        (key,) = [m["key"] for m in self.run_json("preload", "m.json", "--no-load")["modules"] if m["name"] == "scale"]
        self.run_cli("rm", key)
        self.assertEqual(self.reasons("m.json", expect=FAILED)["scale", "sm_90a"], "the stored entry was evicted")
        explained = self.run_json("explain", "m.json", "--arch", "sm_90a")["explanations"][0]["differences"]
        self.assertEqual((explained[0]["field"], explained[0]["was"]), ("entry", "evicted or removed"))

    def test_each_reason_is_the_one_of_explain(self):  # fault 457
        self.fill()
        self.manifest([{"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 2}, "flags": ["-lineinfo"],
                        "targets": ["sm_90a"]}])  # fmt: skip
        self.assertEqual(self.reasons("m.json", expect=FAILED)["add", "sm_90a"],
                         "not in the store: flag was --define-macro=ADDEND=1, is --define-macro=ADDEND=2; flag was none, is --generate-line-info")
        self.manifest([{"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 2}, "targets": ["sm_90a"],
                        "flags": ["-lineinfo", "--use_fast_math", "-maxrregcount=32"]}])  # fmt: skip
        self.assertRegex(self.reasons("m.json", expect=FAILED)["add", "sm_90a"],
                         "^not in the store: (flag was [^;]*; ){3}1 more$")  # fmt: skip
        self.write("add.cu", "__device__ const char* when = __TIME__;\n" + (self.folder / "add.cu").read_text())
        self.assertRegex(self.reasons("m.json", expect=FAILED)["add", "sm_90a"],
                         r"^never stored: uses __TIME__ \(.*add\.cu\)$")  # fmt: skip
        self.manifest([{"name": "scale", "sources": ["scale.cu"], "targets": ["sm_90a"]}])
        env = {"CUKILN_NVRTC_LIBRARY": str(BINARIES / "libnvrtc_fake.so")}
        self.assertRegex(self.reasons("m.json", env=env, expect=FAILED)["scale", "sm_90a"],
                         r"^not in the store: compiler was nvrtc \d+\.\d+\.\d+ \w+, is nvrtc ")  # fmt: skip

    def test_the_target_that_nothing_names_is_said(self):
        self.manifest([{"name": "scale", "sources": ["scale.cu"]}])
        said = "Checked for sm_100a: neither --arch, the manifest nor a GPU here names a target."
        self.assertIn(said, self.run_cli("fits", "m.json", expect=FAILED).out)
        self.assertEqual(self.run_json("fits", "m.json", expect=FAILED)["assumed_target"], "sm_100a")
        for more, env in (("--arch", "sm_90a"), {}), ((), {"CUKILN_CUDA_LIBRARY": FAKE_DRIVER}):
            named = self.run_cli("fits", "m.json", *more, env=env, expect=FAILED)
            self.assertNotIn("Checked for", named.out)
        self.assertIsNone(self.run_json("fits", "m.json", "--arch", "sm_90a", expect=FAILED)["assumed_target"])
        self.manifest([{"name": "scale", "sources": ["scale.cu"], "flags": ["-arch=sm_90a"]}])
        self.assertIsNone(self.run_json("fits", "m.json", expect=FAILED)["assumed_target"])

    def test_without_a_compiler_and_without_a_store(self):
        env = {"CUKILN_NVRTC_LIBRARY": "/nowhere"}
        self.assertEqual(set(self.reasons("m.json", env=env, expect=FAILED).values()),
                         {"the store is empty, and there is no NVRTC"})  # fmt: skip
        self.fill()
        self.assertEqual(set(self.reasons("m.json", env=env).values()), {""})

    def test_a_device_that_no_target_serves(self):
        self.fill()
        env = {"CUKILN_CUDA_LIBRARY": FAKE_DRIVER}
        devices = self.run_json("fits", "m.json", env=env, expect=None)["devices"]
        self.assertTrue(devices)
        targets = {d["target"] for d in devices}
        self.manifest([{"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 1}, "targets": ["sm_80"]}])
        self.run_cli("preload", "m.json", "--no-load")
        missed = self.reasons("m.json", env=env, expect=FAILED)
        self.assertEqual(missed["add", "sm_80"], "")
        for target in targets:
            self.assertRegex(missed["add", target], r"^device \d \(.*\) runs none of its targets: sm_80$")
        env = {"CUKILN_CUDA_LIBRARY": str(BINARIES / "libnvrtc_fake.so")}
        self.assertIn("is not a CUDA driver", self.run_cli("fits", "m.json", env=env, expect=ENVIRONMENT).err)

    def test_mistakes(self):
        self.run_cli("fits", expect=USAGE)
        self.run_cli("fits", "m.json", "m.json", expect=USAGE)
        self.run_cli("fits", "nothing.json", expect=USAGE)
        self.run_cli("fits", "nothing.ckb", expect=USAGE)
        self.run_cli("fits", "m.json", "--arch", "sm_1", expect=USAGE)
        self.manifest([])
        self.assertEqual(self.reasons("m.json", expect=FAILED)["m.json", "-"], "there is nothing in it")


class Bundles(Filled):
    def test_a_bundle_is_trusted_and_for_the_targets_that_are_asked_for(self):
        self.fill()
        self.run_cli("export", "-o", "b.ckb", "--sign", "k.key")
        untrusted = self.run_cli("fits", "b.ckb", expect=FAILED)
        self.assertIn("--trust PUBKEY trusts a key", untrusted.err)
        trust = ("--trust", "k.key.pub")
        self.assertEqual(len(self.reasons("b.ckb", *trust)), 3)
        self.assertEqual(self.reasons("b.ckb", *trust, "--arch", "sm_100a", expect=FAILED),
                         {("add", "sm_100a"): "", ("scale", "sm_100a"): "not in the bundle"})  # fmt: skip
        self.assertEqual(set(self.reasons("b.ckb", *trust, env={"CUKILN_NVRTC_LIBRARY": "/nowhere"}).values()), {""})

    # fault 186
    def test_a_bundle_of_another_compiler_does_not_fit(self):
        self.fill()
        self.run_cli("export", "-o", "b.ckb", "--sign", "k.key")
        env = {"CUKILN_NVRTC_LIBRARY": str(BINARIES / "libnvrtc_fake.so")}
        for reason in self.reasons("b.ckb", "--trust", "k.key.pub", env=env, expect=FAILED).values():
            self.assertRegex(reason, r"^compiled by nvrtc [\d.]+, and this machine has|another build")

    # fault 186
    def test_other_headers_of_cuda_do_not_fit(self):
        self.write("half.cu", '#include <cuda_fp16.h>\nextern "C" __global__ void half_k(__half* x) { *x = __float2half(1); }\n')
        self.manifest([{"name": "half", "sources": ["half.cu"], "targets": ["sm_90a"]}])
        self.fill()
        self.run_cli("export", "-o", "b.ckb", "--sign", "k.key")
        self.assertEqual(set(self.reasons("b.ckb", "--trust", "k.key.pub").values()), {""})
        newer = self.write("newer/cuda_fp16.h", "// of a newer release\n").parent
        env = {"CUKILN_NVRTC_LIBRARY": "/nowhere", "CUKILN_INCLUDE_PATH": str(newer)}
        (reason,) = self.reasons("b.ckb", "--trust", "k.key.pub", env=env, expect=FAILED).values()
        self.assertRegex(reason, "^header changed: .*/newer/cuda_fp16.h$")
        (reason,) = self.reasons("m.json", env=env, expect=FAILED).values()
        self.assertRegex(reason, "^header changed: .*/newer/cuda_fp16.h$")
        missing = self.run_cli("preload", "m.json", "--offline", "--no-load", env=env, expect=FAILED)
        self.assertIn("CUDA's headers on this machine are not those of nvrtc", missing.err)


class Images(Filled):
    def export(self, folder, *arguments, **options):
        return self.run_json("export", "--oci", folder, "--manifest", "m.json", *arguments, **options)

    def files(self, folder):
        folder = self.folder / folder
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    def digests(self, folder):
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files(folder).items()}

    def blob(self, folder, descriptor):
        data = (self.folder / folder / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
        self.assertEqual(descriptor["digest"], "sha256:" + hashlib.sha256(data).hexdigest())
        self.assertEqual(descriptor["size"], len(data))
        return data

    def test_an_image_is_as_the_specification_has_it(self):
        self.fill()
        done = self.export("image", "--sign", "k.key")
        self.assertEqual(json.loads((self.folder / "image/oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})
        index = json.loads((self.folder / "image/index.json").read_text())
        (image,) = index["manifests"]
        self.assertEqual((image["digest"], image["mediaType"]), (done["digest"], IMAGE))
        self.assertEqual(image["annotations"], {"org.opencontainers.image.ref.name": "kernels"})
        manifest = json.loads(self.blob("image", image))
        config = json.loads(self.blob("image", manifest["config"]))
        (layer,) = manifest["layers"]
        self.assertEqual(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+zstd")
        self.blob("image", layer)
        self.assertEqual(config["os"], "linux")
        self.assertEqual(len(config["rootfs"]["diff_ids"]), 1)
        self.assertEqual(manifest["annotations"]["cukiln.targets"], "sm_100a,sm_90a")
        mcv = {name.partition("/")[2]: json.loads(text) for name, text in manifest["annotations"].items() if name.startswith("cache.triton.image/")}
        self.assertEqual(mcv, {"cache-size-bytes": layer["size"], "entry-count": 2, "summary": {"targets": [
            {"backend": "cuda", "arch": arch, "warp_size": 32} for arch in ("100", "90")]}})  # fmt: skip
        signature = base64.b64decode(manifest["annotations"].pop(SIGNATURE), validate=True)
        signed = hashlib.blake2b(b"cukiln image" + config["rootfs"]["diff_ids"][0].encode(), digest_size=32)
        self.assertIn(signed.digest(), signature)  # the name of the envelope, whose payload may be compressed
        self.assertEqual(manifest["annotations"], config["config"]["Labels"])

    def test_a_file_whose_name_is_not_utf8_becomes_an_image(self):
        name = os.fsdecode(b"caf\xe9.cu")
        (self.folder / name).write_text('extern "C" __global__ void k(int* p) { *p = 1; }\n')
        self.compile(name, "--arch", "sm_90a")
        self.assertEqual(self.run_json("export", "--oci", "image", os.fsdecode(b"caf\xe9"))["entries"], 1)
        (image,) = json.loads((self.folder / "image/index.json").read_text())["manifests"]
        annotations = json.loads(self.blob("image", image))["annotations"]
        self.assertIn("caf\ufffd", annotations.values())

    @unittest.skipUnless(shutil.which("zstd") and shutil.which("tar"), "unpacks a layer")
    def test_the_layer_is_a_system_store(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        index = json.loads((self.folder / "image/index.json").read_text())
        manifest = json.loads(self.blob("image", index["manifests"][0]))
        archive = subprocess.run(["zstd", "-dc"], input=self.blob("image", manifest["layers"][0]),
                                 stdout=subprocess.PIPE, check=True).stdout  # fmt: skip
        listed = subprocess.run(["tar", "-tvf", "-", "--numeric-owner", "--full-time", "--utc"], input=archive,
                                stdout=subprocess.PIPE, check=True, text=False).stdout.decode().splitlines()  # fmt: skip
        self.assertEqual([line.split()[-1] for line in listed],
                         ["v6/", "v6/CURRENT", "v6/gen-0001/", "v6/gen-0001/store.db"])  # fmt: skip
        for line in listed:
            self.assertRegex(line, r"^(drwxr-xr-x|-rw-r--r--) 0/0 +\d+ 1970-01-01 00:00:00 ")
        mounted = self.folder / "mounted"
        mounted.mkdir()
        subprocess.run(["tar", "-xf", "-", "-C", str(mounted)], input=archive, check=True)
        env = {"CUKILN_STORE": str(self.folder / "empty"), "CUKILN_SYSTEM_STORE": str(mounted)}
        self.assertEqual(set(self.reasons("m.json", env=env).values()), {""})
        signers = {e["signer"].split(":")[0] for e in self.run_json("ls", env=env)["entries"]}
        self.assertEqual(signers, {"k"})

    def test_two_exports_give_the_same_bytes_and_so_do_two_compiles(self):
        self.fill()
        for more in ((), ("--sign", "k.key")):
            self.export("one", *more)
            self.export("two", *more)
            self.export("one", *more)  # replaces
            other = {"CUKILN_STORE": str(self.folder / "other")}
            self.run_cli("preload", "m.json", "--no-load", env=other)
            self.export("three", *more, env=other)
            self.assertEqual(self.digests("one"), self.digests("two"))
            self.assertEqual(self.digests("one"), self.digests("three"))
        self.assertEqual(len(self.files("one")), 2 + 3)

    def test_an_image_is_imported_and_fits(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        env = {"CUKILN_STORE": str(self.folder / "empty")}
        for arguments in (("import", "image"), ("fits", "image")):
            refused = self.run_cli(*arguments, env=env, expect=FAILED)
            self.assertIn('is signed by "k", which is not among the 0 trusted keys; --trust PUBKEY', refused.err)
        trust = ("--trust", "k.key.pub")
        self.assertEqual(len(self.reasons("image", *trust, env=env)), 3)
        self.assertEqual(self.run_json("import", "image", *trust, env=env)["imported"], 3)
        self.assertEqual(set(self.reasons("m.json", env=env).values()), {""})
        self.run_cli("import", "image", *trust, "--system-store", "system", env=env)
        self.export("plain")
        self.assertIn("not signed; --insecure accepts it", self.run_cli("fits", "plain", expect=FAILED).err)
        self.run_cli("fits", "plain", "--insecure")
        revoked = self.write("list", "revoked " + (self.folder / "k.key.pub").read_text())
        gone = self.run_cli("import", "image", "--insecure", "--trust", revoked, env=env, expect=FAILED)
        self.assertIn("revoked", gone.err)

    def document(self, folder):
        (image,) = json.loads((self.folder / folder / "index.json").read_text())["manifests"]
        return json.loads(self.blob(folder, image))

    def annotate(self, folder, signature):
        """Writes another signature into the manifest, with the digests that this takes."""
        manifest = self.document(folder)
        manifest["annotations"][SIGNATURE] = signature
        data = json.dumps(manifest).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / folder / "blobs/sha256" / digest).write_bytes(data)
        index = json.loads((self.folder / folder / "index.json").read_text())
        index["manifests"][0] |= {"digest": "sha256:" + digest, "size": len(data)}
        (self.folder / folder / "index.json").write_text(json.dumps(index))

    # fault 380
    @unittest.skipUnless(shutil.which("skopeo"), "scripts/bootstrap --tests installs skopeo")
    def test_a_copy_by_skopeo_keeps_the_signature(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        for source, target in (("oci:image:kernels", "oci:copy:kernels"), ("oci:copy:kernels", "dir:folder"),
                               ("dir:folder", "oci:pulled:kernels")):  # fmt: skip
            subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", source, target], cwd=self.folder,
                           env={"PATH": os.environ["PATH"], "HOME": str(self.folder)}, check=True)  # fmt: skip
        self.run_cli("fits", "pulled", "--trust", "k.key.pub")
        env = {"CUKILN_STORE": str(self.folder / "empty")}
        self.assertEqual(self.run_json("import", "pulled", "--trust", "k.key.pub", env=env)["imported"], 3)

    # fault 381
    def test_a_document_of_millions_of_levels_is_an_error(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        index = (self.folder / "image/index.json").read_text()
        for nested in ("[" * 1_900_000 + "]" * 1_900_000, '{"a":' * 600_000 + "1" + "}" * 600_000):
            (self.folder / "image/index.json").write_text(index.replace('"manifests":', f'"other":{nested},"manifests":'))
            for command in ("fits", "import"):
                refused = self.run_cli(command, "image", "--trust", "k.key.pub", expect=FAILED)
                self.assertIn("levels", refused.err)

    # fault 183
    def test_any_damaged_blob_is_refused(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        for name, data in self.files("image").items():
            for damaged in (data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1])):
                (self.folder / "image" / name).write_bytes(damaged)
                self.run_cli("fits", "image", "--trust", "k.key.pub", expect=FAILED)
                self.run_cli("import", "image", "--insecure", "--system-store", "x", expect=FAILED)
            (self.folder / "image" / name).write_bytes(data)
        self.run_cli("fits", "image", "--trust", "k.key.pub")
        self.assertFalse((self.folder / "x").exists())

    # fault 184
    def test_a_signature_of_another_image_or_key_is_refused(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        self.manifest([{"name": "scale", "sources": ["scale.cu"], "targets": ["sm_90a"]}])
        self.run_cli("keygen", "-o", "other.key")
        self.export("other", "--sign", "k.key")
        signature = self.document("image")["annotations"][SIGNATURE]
        self.annotate("other", signature)
        for command in ("fits", "import"):
            self.run_cli(command, "other", "--trust", "k.key.pub", expect=FAILED)
        for text in ("", "?", signature[:-4], signature + "AAAA", 5, [], signature * 20):
            self.annotate("image", text)
            self.run_cli("fits", "image", "--trust", "k.key.pub", expect=FAILED)
        self.annotate("image", signature)
        self.run_cli("fits", "image", "--trust", "k.key.pub")
        self.export("other", "--sign", "other.key")
        self.run_cli("fits", "other", "--trust", "k.key.pub", expect=FAILED)
        self.run_cli("fits", "other", "--trust", "other.key.pub")

    # fault 185
    def test_a_layout_without_an_index_is_refused(self):
        self.fill()
        self.export("image", "--sign", "k.key")
        (self.folder / "image/index.json").unlink()
        refused = self.run_cli("fits", "image", "--trust", "k.key.pub", expect=USAGE)
        self.assertIn("is not an OCI image layout", refused.err)
        self.write("home/file", "")
        kept = self.run_cli("export", "--oci", "home", "--manifest", "m.json", expect=FAILED)
        self.assertIn("neither empty nor an OCI image layout", kept.err)
        self.run_cli("export", "--oci", "image", "-o", "b.ckb", expect=USAGE)


if __name__ == "__main__":
    unittest.main()
