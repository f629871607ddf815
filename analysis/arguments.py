# SPDX-License-Identifier: Apache-2.0
"""Types of command-line arguments that several scripts take: what is not there is said before anything runs."""

import argparse
import os
import shutil


def names(known):
    """A list of some of these."""

    def convert(text):
        words = tuple(text.split(","))
        if not set(words) <= set(known):
            raise argparse.ArgumentTypeError(f"not all of {text} are among {','.join(known)}")
        return words

    return convert


def program(path):
    """A program, by its path or in PATH."""
    if not shutil.which(path):
        raise argparse.ArgumentTypeError(f"there is no program {path}")
    return path


def folder_of(*wanted):
    """A folder with these programs."""

    def convert(folder):
        for name in wanted:
            program(os.path.join(folder, name))
        return folder

    return convert


def file(path):
    if not os.path.isfile(path):
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return path
