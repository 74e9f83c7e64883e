"""A small result in files, and a viewer that runs beside the tests."""

import asyncio
import threading
from dataclasses import replace

import numpy as np

import sigmacube as sc

SHAPE = (46, 61, 70)
NOISE = 0.04
ODD = [[9, 17], [30, 41]]


def make_result():
    """Return (result, noisy cube): bad bands, a masked corner, noise per band, a place."""
    truth = sc.synthetic.scene(SHAPE, rng=3)
    noisy = sc.synthetic.add_noise(truth, NOISE, rng=4)
    good = [band not in (20, 21) for band in range(SHAPE[2])]
    mask = np.ones(SHAPE, dtype=bool)
    mask[:3, :4] = False
    mask[:, :, 20:22] = False
    cube = sc.Cube(
        noisy.values,
        noisy.wavelengths,
        mask,
        {
            **noisy.metadata,
            "good_bands": good,
            "source": "scene.npy",
            "transform": [30.0, 0.0, 600_000.0, 0.0, -30.0, 5_800_000.0],
        },
    )
    level = np.full(SHAPE[2], NOISE)
    result = sc.denoise(cube, level, prior=None, window=12, step=4)
    return replace(result, unexplained=np.array(ODD)), cube


class Running:
    """A viewer in a thread of its own."""

    def __init__(self, result, **options):
        self._ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(result, options), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        if self._error is not None:
            raise self._error

    def _run(self, result, options):
        from sigmacube.show.viewer import start

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            self.viewer = start(result, **options)
        except Exception as error:
            self._error = error
            loop.close()
            self._ready.set()
            return
        self.viewer.loop.add_callback(self._ready.set)
        self.viewer.loop.start()
        self.viewer.stop()
        self.viewer.loop.close(all_fds=True)

    @property
    def port(self):
        return self.viewer.port

    @property
    def url(self):
        return self.viewer.url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.viewer.loop.add_callback(self.viewer.loop.stop)
        self._thread.join(20)
        assert not self._thread.is_alive()
