"""The taps of one sequence, and the pages they lie in.

0 ......... base ......... confirmed ......... end
given up         | retained: may be fed again       | written by the next step
"""

from dataclasses import dataclass, field

from services.target.taps.needs import Needs


@dataclass(slots=True, eq=False)
class Page:
    """A page of the region. It is free when no sequence owns it and no feed on its way names it (`pins`)."""

    index: int
    generation: int = 0
    owned: bool = False
    pins: int = 0


@dataclass(slots=True, eq=False)
class Retained:
    """Positions base .. end - 1 have their taps in `pages`, `per_page` in each; the drafter holds 0 .. confirmed - 1.

    `ended`: there was no room, so no drafter that needs taps can draft for the sequence any more."""

    needs: Needs
    per_page: int
    pages: list[Page] = field(default_factory=list)
    base: int = 0
    end: int = 0
    confirmed: int = 0
    ended: bool = False

    @property
    def room(self) -> int:
        """Positions that its pages have room for."""
        return self.base + len(self.pages) * self.per_page - self.end

    @property
    def confirmed_pages(self) -> int:
        """Pages all of whose positions the drafter holds."""
        return (self.confirmed - self.base) // self.per_page

    def place(self, position: int) -> tuple[Page, int]:
        """The page of a position, and how many positions it has before it."""
        assert position >= self.base, "what was given up is not fed"
        index, skip = divmod(position - self.base, self.per_page)
        return self.pages[index], skip

    def border(self, position: int) -> int:
        """The first position after `position` that lies in another page."""
        return (position // self.per_page + 1) * self.per_page
