"""Puts the command into the wheel: FOREBAY_BINARY names the file, and pip installs it next to
`python`.

Without that variable, the wheel contains only Python, and `forebay` has to be installed separately.
"""

import os
import re
import subprocess
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def platform_tag(binary):
    """The platform tag of the binary: the C library must be at least as new as the newest
    symbol.
    """
    symbols = subprocess.run(
        ["objdump", "-T", binary], check=True, capture_output=True, text=True
    ).stdout
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)
    major, minor = max((int(a), int(b)) for a, b in versions)
    machine = sysconfig.get_platform().rsplit("-", 1)[-1]
    return f"manylinux_{major}_{minor}_{machine}"


class CommandHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        binary = os.environ.get("FOREBAY_BINARY")
        if binary and version != "editable":
            build_data["shared_scripts"][os.path.abspath(binary)] = "forebay"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag(binary)}"
