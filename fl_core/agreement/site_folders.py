"""Read a folder with a folder of images for each site, as devices would read them."""

from dataclasses import replace

from fl_core.agreement.local_data import read_local_images, survey_images
from fl_core.agreement.vote import agree
from fl_core.data.dataset import Dataset
from fl_core.data.folders import folders_and_files, ignored_note, list_site_folders, site_of
from fl_core.data.image_files import list_images
from fl_core.data.settings import Source
from fl_core.data.user_data import Partitions, dataset_of_partitions


def read_sites(source: Source) -> Dataset:
    """Read a folder of sites, as devices would: the class folders of each are a client's."""
    folders = list_site_folders(source.root)
    agreement = agree({site_of(path): survey_images(path) for path in folders})
    clients = []
    notes = ignored_note(source.root, "folders", folders_and_files(source.root)[1])
    for path in folders:
        images = read_local_images(path, source.cache, agreement)
        if not len(images.test_samples):
            raise ValueError(
                f"{path} has no images to test on: add images, at least two of a class, some of "
                "which are held out, or a folder test beside train."
            )
        clients.append(images[:4])
        notes += (*list_images(path).notes(path), *images.notes)
    names = tuple(map(site_of, folders))
    given = Partitions(clients, class_names=agreement.class_names, names=names)
    return replace(dataset_of_partitions(source.name, given), notes=tuple(notes))
