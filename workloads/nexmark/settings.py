"""Settings of the generator of NEXMark events."""

from __future__ import annotations

from dataclasses import dataclass

from rhino_core.setting import require

BASE_MS = 1_436_918_400_000  # 2015-07-15T00:00Z
PERSON_BYTES, AUCTION_BYTES = 206, 269  # Rhino 5.1
ACTIVE_PERSONS, PERSON_LEAD = 1000, 10
IN_FLIGHT_AUCTIONS, AUCTION_LEAD = 100, 10
IN_FLIGHT_EVENTS = IN_FLIGHT_AUCTIONS * 50 // 3  # events until 100 more auctions exist
HOT_STRIDE = 100  # every hundredth auction, seller and bidder is a hot one
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
FIRST_NAMES = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
LAST_NAMES = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"
CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"
STATES = "AZ,CA,ID,OR,WA,WY"


@dataclass(frozen=True, slots=True)
class Generator:
    """Settings of the generator. The defaults are Apache Beam's. Raises InvalidSettingError.

    `rate`: events per second of event time. `generators`: Beam's parallel generators share `events` events. Ids
    continue from one generator to the next, but event time starts again. `hot_*`: one in so many is not a hot one (1:
    none is hot). `addresses`: adds mail, card, city and state of persons. `descriptions`: adds item, description and
    reserve of auctions. The random strings of both make a row many times as expensive. `padded`: fills records up to
    the sizes in Rhino 5.1.
    """

    rate: int = 10_000
    generators: int = 1
    events: int = 0
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    addresses: bool = False
    descriptions: bool = False
    padded: bool = False

    def __post_init__(self) -> None:
        require(1 <= self.rate <= 1_000_000, "rate", self.rate, "1 to 1000000 events per second")
        require(self.generators >= 1, "generators", self.generators, "1 or more")
        shared = self.generators == 1 or (self.events > 0 and self.events % self.generators == 0)
        require(shared, "events", self.events, f"a multiple of the {self.generators} generators")
        for name in ("hot_auctions", "hot_sellers", "hot_bidders"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")

    @property
    def delay_us(self) -> int:
        """Event time between two events of one generator, in microseconds."""
        return (1_000_000 + self.rate // 2) // self.rate * self.generators

    @property
    def events_each(self) -> int:
        return self.events // self.generators

    @property
    def longest_auction_ms(self) -> int:
        """Upper bound of the time for which an auction is open."""
        return 2 * (IN_FLIGHT_EVENTS * self.delay_us // 1000 + 1) + 1
