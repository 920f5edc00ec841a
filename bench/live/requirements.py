"""Prints what an installed package needs, a requirement a line, for this machine.

Left out: what only its extras need, and a package that only decodes video. A
version of torch that names a build ("2.1+cpu") is asked for without that name:
the plain one computes the same on the CPU. Usage: python requirements.py NAME"""

import importlib.metadata
import sys

from pip._vendor.packaging.requirements import Requirement

LEFT_OUT = {"torchcodec"}

for line in importlib.metadata.requires(sys.argv[1]) or []:
    r = Requirement(line)
    if r.name in LEFT_OUT or r.marker and not r.marker.evaluate({"extra": ""}):
        continue
    extras = "[" + ",".join(sorted(r.extras)) + "]" if r.extras else ""
    versions = str(r.specifier)
    if r.name == "torch":
        versions = versions.split("+")[0]
    print(r.name + extras + versions)
