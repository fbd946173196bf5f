"""The one build step that pyproject.toml cannot say; all else is there."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithApp(build_py):
    """Put pyproject.toml into the package: `fedkin run` reads the Flower app and its options there.

    A checkout, which an editable install is, has it beside the package.
    """

    def run(self) -> None:
        """Copy the modules, then the file."""
        super().run()
        if not self.editable_mode:
            self.copy_file("pyproject.toml", str(Path(self.build_lib, "fl_app")))


setup(cmdclass={"build_py": BuildWithApp})
