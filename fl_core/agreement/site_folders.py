"""A folder with a folder of images for each site, as sites with devices would have them."""

from __future__ import annotations

from dataclasses import replace

from fl_core.agreement.local_images import read_own_images, survey_images
from fl_core.agreement.vote import agree
from fl_core.data.dataset import Dataset
from fl_core.data.folders import folders_and_files, ignored_note, site_folders, site_of
from fl_core.data.settings import Source
from fl_core.data.user_data import Partitions, of_partitions


def read_sites(source: Source) -> Dataset:
    """Read a folder of sites: the class folders of each are a client's, of its name.

    Classes, the size of images and which ones test are settled as between devices
    (`fl_core.agreement.agreement.agree`, `fl_core.agreement.local_images.read_own_images`).

    Raises
    ------
    ValueError
        If there are no such folders, images of a site cannot be used, or none are left to test.
    OSError
        If a folder cannot be read.
    """
    folders = site_folders(source.root)
    agreement = agree({site_of(path): survey_images(path) for path in folders})
    clients = []
    notes = ignored_note(source.root, "folders", folders_and_files(source.root)[1])
    for path in folders:
        images = read_own_images(path, source.cache, agreement)
        if not len(images.test_samples):
            raise ValueError(
                f"{path} has no images to test by: give a class two images or more, of which some "
                "are held out, or a folder test beside train."
            )
        clients.append(images[:4])
        notes += images.notes
    names = tuple(map(site_of, folders))
    given = Partitions(clients, class_names=agreement.class_names, names=names)
    return replace(of_partitions(source.name, given), notes=tuple(notes))
